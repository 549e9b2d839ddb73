from datetime import UTC, datetime

from django.db import models
from uuid_utils.compat import uuid7

from backend.apps.connectors.models import Connector
from backend.apps.pipelines.models import Pipeline
from backend.apps.workspaces.models import Workspace


class CountMinute(models.Model):
    """What happened to a pipeline's messages within one minute, and how many waited: history for charts. A minute in
    which nothing happened and nothing waited has no row."""

    pipeline_id = models.UUIDField()
    minute = models.DateTimeField()
    counts = models.JSONField(help_text="Counts by event, classes of latency included.")
    waiting = models.BigIntegerField(
        null=True, help_text="Messages that waited when the minute was written; null if it was written later."
    )

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
        EXPORT_UNSTORED = "export_unstored", "A file could not be stored for longer than this, in minutes"
        STAGE_LAG = "stage_lag", "More than this many messages wait before a stage"
        BREAKER_OPEN = "breaker_open", "A circuit breaker is open"
        JOB_DOWN = "job_down", "A Spark application or a part of it does not run, or messages were lost"
        REGISTRATION = "registration", "What a pipeline made in another system is in danger, or endangers that system"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="alert_rules")
    name = models.CharField(max_length=100)
    kind = models.CharField(max_length=20, choices=Kind.choices)
    threshold = models.FloatField(
        default=0, help_text="Its meaning depends on the kind; breaker_open, job_down and registration do not use it."
    )
    minutes = models.PositiveSmallIntegerField(
        default=5, help_text="Period over which failure_rate is computed, in minutes."
    )
    pipeline = models.ForeignKey(
        Pipeline,
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        help_text="Only this pipeline; all pipelines if it is empty.",
    )
    connector = models.ForeignKey(
        Connector, on_delete=models.PROTECT, null=True, blank=True, help_text="Receives each alert as JSON."
    )
    email = models.EmailField(blank=True, help_text="Receives each alert.")
    enabled = models.BooleanField(default=True)

    def __str__(self) -> str:
        return self.name


class Alert(models.Model):
    """A rule whose condition was met, or still is."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    rule = models.ForeignKey(AlertRule, on_delete=models.CASCADE, related_name="alerts")
    subject = models.CharField(
        max_length=150, help_text="What the alert is about; a rule has one open alert for each subject."
    )
    message = models.TextField()
    started_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True)
    notification = models.TextField(blank=True, help_text="Why people could not be notified.")
    unsent = models.JSONField(
        default=list, blank=True, help_text="Notifications that are still to be sent: the state and receiver of each."
    )
    tries = models.PositiveSmallIntegerField(default=0, help_text="How often sending them has failed.")
    send_at = models.DateTimeField(null=True, help_text="When they are sent; empty if there are none.")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["rule", "subject"], condition=models.Q(ended_at=None), name="one_open_alert_per_subject"
            )
        ]
        indexes = [models.Index(fields=["send_at"], condition=~models.Q(send_at=None), name="alert_to_be_sent")]

    def __str__(self) -> str:
        return f"{self.rule}: {self.subject}"

    def notify(self, state: str) -> None:
        """Notes that people are to be notified of the state, "firing" or "resolved". To be saved with what causes it,
        so that no notification is lost."""
        receivers = ["connector"] * bool(self.rule.connector_id) + ["email"] * bool(self.rule.email)
        self.unsent = [*self.unsent, *([state, receiver] for receiver in receivers)]
        self.tries = 0
        self.send_at = datetime.now(UTC) if self.unsent else None
