from django.db import models
from uuid_utils.compat import uuid7


class DeadLetter(models.Model):
    """A message that an output did not accept or a stage could not process, with all that
    is needed to redeliver it."""

    class State(models.TextChoices):
        WAITING = "waiting"
        REDELIVERING = "redelivering"
        DELIVERED = "delivered"
        DISCARDED = "discarded"
        EXPIRED = "expired", "Expired: its body was removed to keep the size or the time bound"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    # No foreign keys: pipelines may be deleted, and a malformed record names none.
    workspace_id = models.UUIDField(null=True)
    pipeline_id = models.UUIDField(null=True)
    output = models.CharField(max_length=63, blank=True, help_text="Empty when a stage before the outputs failed.")
    stage = models.CharField(max_length=50)
    message_id = models.CharField(max_length=64, blank=True)
    version = models.PositiveIntegerField(default=0, help_text="Pipeline version the message was accepted under.")

    state = models.CharField(max_length=12, choices=State.choices, default=State.WAITING)
    reason = models.CharField(max_length=100)
    error = models.TextField()
    attempts = models.PositiveIntegerField(default=0, help_text="Attempts made, over all redeliveries.")
    redeliveries = models.PositiveIntegerField(default=0)
    due_at = models.DateTimeField(null=True, help_text="When it is redelivered automatically; empty: only by hand.")
    use_current_version = models.BooleanField(
        default=False, help_text="Redelivered under the version that is published then."
    )
    claimed_at = models.DateTimeField(null=True, help_text="When a worker claimed it for redelivery.")
    sent_at = models.DateTimeField(null=True, help_text="When Kafka acknowledged its redelivery.")

    key = models.BinaryField()
    body = models.BinaryField()
    body_bytes = models.PositiveIntegerField()
    content_type = models.CharField(max_length=200, blank=True)
    received_at = models.CharField(max_length=40, blank=True)
    headers = models.JSONField(default=dict, help_text="The routing slip and further headers.")

    first_at = models.DateTimeField(help_text="When it first became a dead letter.")
    last_at = models.DateTimeField(help_text="When it last failed.")
    closed_at = models.DateTimeField(null=True)
    closed_by = models.CharField(max_length=150, blank=True)
    closed_why = models.CharField(max_length=500, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["pipeline_id", "output", "message_id", "stage"],
                condition=~models.Q(message_id=""),
                name="one_dead_letter_per_message_output_and_stage",
            )
        ]
        indexes = [
            models.Index(fields=["workspace_id", "-id"], name="dead_letter_by_workspace"),
            models.Index(
                fields=["pipeline_id", "output", "first_at"],
                condition=models.Q(state="waiting"),
                name="dead_letter_waiting",
            ),
            models.Index(
                fields=["pipeline_id", "output"],
                condition=models.Q(state__in=["waiting", "redelivering"]),
                name="dead_letter_open",
            ),
            models.Index(
                fields=["pipeline_id", "output", "due_at"],
                condition=models.Q(reason="rate_limited", state__in=["waiting", "redelivering"]),
                name="dead_letter_rate_limited",
            ),
            models.Index(
                fields=["pipeline_id", "output", "due_at"],
                condition=models.Q(state="waiting"),
                name="dead_letter_due",
            ),
            models.Index(
                fields=["workspace_id", "first_at"],
                condition=models.Q(state="waiting"),
                name="dead_letter_by_age",
            ),
            models.Index(fields=["closed_at"], condition=models.Q(state="expired"), name="dead_letter_expired"),
            models.Index(fields=["claimed_at"], condition=models.Q(state="redelivering"), name="dead_letter_claimed"),
            models.Index(
                fields=["closed_at"],
                condition=models.Q(state__in=["delivered", "discarded"]),
                name="dead_letter_closed",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.message_id} for {self.output or self.stage}: {self.reason}"


class Attempt(models.Model):
    """One delivery attempt: all failures are stored, and a sample of the successes. The table is partitioned by day."""

    id = models.UUIDField(primary_key=True)
    workspace_id = models.UUIDField()
    pipeline_id = models.UUIDField()
    output = models.CharField(max_length=63)
    message_id = models.CharField(max_length=64)
    version = models.PositiveIntegerField()
    at = models.DateTimeField()
    number = models.PositiveSmallIntegerField()
    milliseconds = models.FloatField()
    status = models.CharField(max_length=200, blank=True)
    reason = models.CharField(max_length=100, blank=True, help_text="Empty after a success.")
    error = models.TextField(blank=True)
    response = models.TextField(blank=True)

    class Meta:
        managed = False
        db_table = "deliveries_attempt"

    def __str__(self) -> str:
        return f"{self.message_id} to {self.output}: {self.status or self.reason}"


class OutputEvent(models.Model):
    """A state change of an output's circuit breaker."""

    workspace_id = models.UUIDField(null=True)
    pipeline_id = models.UUIDField()
    output = models.CharField(max_length=80, help_text="An output, or an external call.")
    at = models.DateTimeField()
    state = models.CharField(max_length=10)
    until = models.DateTimeField(null=True, help_text="End of the open time, when there is one.")
    cause = models.TextField()
    stream_id = models.CharField(max_length=40, unique=True, help_text="The entry in Redis it was read from.")

    class Meta:
        verbose_name = "circuit breaker event"
        indexes = [models.Index(fields=["pipeline_id", "-id"], name="output_event_newest")]

    def __str__(self) -> str:
        return f"{self.pipeline_id}/{self.output}: {self.state}"
