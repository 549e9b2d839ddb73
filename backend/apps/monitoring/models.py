from django.db import models
from uuid_utils.compat import uuid7

from backend.apps.connectors.models import Connector
from backend.apps.pipelines.models import Pipeline
from backend.apps.workspaces.models import Workspace


class CountMinute(models.Model):
    """What happened to a pipeline's messages within one minute: history for charts."""

    pipeline_id = models.UUIDField()
    minute = models.DateTimeField()
    counts = models.JSONField(help_text="Counts by event, classes of latency included.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["pipeline_id", "minute"], name="one_count_row_per_minute")]
        indexes = [models.Index(fields=["minute"], name="count_minute_by_time")]

    def __str__(self) -> str:
        return f"{self.pipeline_id} {self.minute}"


class AlertRule(models.Model):
    """A condition that raises alerts, and how people are notified."""

    class Kind(models.TextChoices):
        FAILURE_RATE = "failure_rate", "More than this share of deliveries failed, in per cent"
        DEAD_LETTER_AGE = "dead_letter_age", "A dead letter has waited for longer than this, in minutes"
        DEAD_LETTERS_EXPIRE = "dead_letters_expire", "Dead letters lose their bodies within this time, in hours"
        STAGE_LAG = "stage_lag", "More than this many messages wait before a stage"
        BREAKER_OPEN = "breaker_open", "A circuit breaker is open"
        JOB_DOWN = "job_down", "A Spark application does not run"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="alert_rules")
    name = models.CharField(max_length=100)
    kind = models.CharField(max_length=20, choices=Kind.choices)
    threshold = models.FloatField(default=0, help_text="As the kind says; not used by breaker_open and job_down.")
    minutes = models.PositiveSmallIntegerField(default=5, help_text="Time that failure_rate looks back over.")
    pipeline = models.ForeignKey(
        Pipeline, on_delete=models.CASCADE, null=True, blank=True, help_text="Only this one; all without it."
    )
    connector = models.ForeignKey(
        Connector, on_delete=models.PROTECT, null=True, blank=True, help_text="Is sent each alert as JSON."
    )
    email = models.EmailField(blank=True, help_text="Is written each alert.")
    enabled = models.BooleanField(default=True)

    def __str__(self) -> str:
        return self.name


class Alert(models.Model):
    """A rule whose condition was met, or still is."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    rule = models.ForeignKey(AlertRule, on_delete=models.CASCADE, related_name="alerts")
    subject = models.CharField(max_length=150, help_text="What it is about; a rule has one open alert for each.")
    message = models.TextField()
    started_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True)
    notification = models.TextField(blank=True, help_text="What went wrong when people were told.")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["rule", "subject"], condition=models.Q(ended_at=None), name="one_open_alert_per_subject"
            )
        ]

    def __str__(self) -> str:
        return f"{self.rule}: {self.subject}"
