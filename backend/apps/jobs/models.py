from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.db import models

from backend.domain.stages import Application, stages_in

RESOURCES = ("slots", "master", "driver_memory", "executor_memory", "executor_cores", "most_cores")
_REPORTED_WHILE_STARTING = ("starting", "stopping", "stopped")


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
    master = models.CharField(max_length=500, blank=True, help_text="Spark's master; that of the settings when empty.")
    driver_memory = models.PositiveIntegerField(default=512, help_text="Memory of the driver's JVM, in MiB.")
    executor_memory = models.PositiveIntegerField(
        null=True, blank=True, help_text="Memory of each executor's JVM, in MiB; Spark's default when empty."
    )
    executor_cores = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="Task slots of each executor; all of a worker's when empty."
    )
    most_cores = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="Task slots on the whole cluster; all of them when empty."
    )
    started_with = models.JSONField(
        null=True, blank=True, help_text="The resources of the application; it is started again when they change."
    )
    desired = models.CharField(max_length=10, choices=Desired.choices, default=Desired.RUNNING)

    holder = models.CharField(max_length=255, blank=True, help_text="The host whose worker supervises it.")
    lease_until = models.DateTimeField(
        null=True, blank=True, help_text="Until then no other host's worker may supervise it."
    )
    token = models.BigIntegerField(
        default=0, help_text="Fencing token: counts the starts. An application drains once a later one was started."
    )
    reported_at = models.DateTimeField(
        null=True, blank=True, help_text="When the application with this token last reported itself to the manager."
    )
    silent_since = models.DateTimeField(
        null=True, blank=True, help_text="Since when there has been no heartbeat by any way; the application is hung."
    )
    problem = models.TextField(blank=True, help_text="What the running application reports about its stages.")

    status = models.CharField(max_length=10, choices=Status.choices, default=Status.STOPPED)
    host = models.CharField(max_length=255, blank=True, help_text="Where it was started; empty once it has ended.")
    pid = models.PositiveIntegerField(null=True, blank=True)
    process_started = models.FloatField(
        null=True, blank=True, help_text="Distinguishes the process from a later one with the same PID."
    )
    started_at = models.DateTimeField(null=True, blank=True)
    stop_requested_at = models.DateTimeField(null=True, blank=True)
    failures = models.PositiveIntegerField(default=0, help_text="Starts that failed since it last ran well.")
    restarts = models.PositiveIntegerField(default=0)
    next_start_at = models.DateTimeField(null=True, blank=True)
    exit_code = models.IntegerField(null=True, blank=True)
    last_error = models.TextField(blank=True)

    class Meta:
        verbose_name = "Spark job"

    def __str__(self) -> str:
        return self.name

    def resources(self) -> dict[str, Any]:
        """What its application is to have."""
        return {name: getattr(self, name) for name in RESOURCES}

    def is_outdated(self) -> bool:
        """Whether its application was started with other resources."""
        return self.started_with is not None and self.started_with != self.resources()

    def is_starting(self, reported: str | None) -> bool:
        """Whether its application, which does not work now, is about to: it starts, is drained to be started again, or
        is to be started in the worker's next round. ``reported`` is the state in its heartbeat, None without a fresh
        one. An application that has failed is not starting before its next start, and after several failures in a row
        not before it runs."""
        if self.desired == self.Desired.STOPPED or self.status == self.Status.FAILED or self.failures > 1:
            return False
        return self.status != self.Status.RUNNING if reported is None else reported in _REPORTED_WHILE_STARTING

    def is_expected(self) -> bool:
        """Whether the worker's next round is to find its application running, or to start it: all that can be said of
        it before that round."""
        return self.desired == self.Desired.RUNNING and self.failures <= 1

    def stage_names(self) -> list[str]:
        """The stages that it runs."""
        application = Application(self.name) if self.name in set(Application) else Application.DATA_PLANE
        return self.stages or [stage.name for stage in stages_in(application)]


class LostMessages(models.Model):
    """Messages that Kafka deleted by retention before a stage had read them."""

    job = models.ForeignKey(SparkJob, on_delete=models.CASCADE, related_name="losses")
    stage = models.CharField(max_length=50)
    partition = models.PositiveIntegerField()
    first_offset = models.BigIntegerField()
    count = models.BigIntegerField()
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name = "lost messages"
        verbose_name_plural = "lost messages"
        constraints = [
            models.UniqueConstraint(fields=["job", "stage", "partition", "first_offset"], name="one_row_per_loss")
        ]

    def __str__(self) -> str:
        return f"{self.count} of {self.stage}, partition {self.partition} from {self.first_offset}"
