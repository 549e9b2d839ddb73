from django.contrib.postgres.fields import ArrayField
from django.db import models

from backend.domain.stages import STAGES


class SparkJob(models.Model):
    """A Spark application: its desired state, and its last observed state."""

    class Desired(models.TextChoices):
        RUNNING = "running"
        STOPPED = "stopped"

    class Status(models.TextChoices):
        STOPPED = "stopped"
        STARTING = "starting"
        RUNNING = "running"
        STOPPING = "stopping"
        FAILED = "failed", "Failed, will be started again"

    name = models.SlugField(unique=True)
    stages = ArrayField(
        models.CharField(max_length=50), default=list, blank=True, help_text="Names of stages; all of them when empty."
    )
    slots = models.PositiveSmallIntegerField(default=1, help_text="Lane tasks per stage.")
    desired = models.CharField(max_length=10, choices=Desired.choices, default=Desired.RUNNING)

    status = models.CharField(max_length=10, choices=Status.choices, default=Status.STOPPED)
    pid = models.PositiveIntegerField(null=True, blank=True)
    process_started = models.FloatField(
        null=True, blank=True, help_text="Tells the process from a later one with its id."
    )
    started_at = models.DateTimeField(null=True, blank=True)
    stop_asked_at = models.DateTimeField(null=True, blank=True)
    failures = models.PositiveIntegerField(default=0, help_text="Starts that failed since it last ran well.")
    restarts = models.PositiveIntegerField(default=0)
    next_start_at = models.DateTimeField(null=True, blank=True)
    exit_code = models.IntegerField(null=True, blank=True)
    last_error = models.TextField(blank=True)

    def __str__(self) -> str:
        return self.name

    def stage_names(self) -> list[str]:
        """The stages that it runs."""
        return self.stages or [stage.name for stage in STAGES]
