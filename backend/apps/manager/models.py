from django.db import models
from django.utils import timezone

from backend.apps.pipelines.models import Pipeline
from backend.domain.capabilities import Reading


class InputLease(models.Model):
    """An input that the data plane reads, its current reader, and how far that has come. It can be claimed from
    ``visible_at`` on, and again once ``locked_until`` has passed; ``token`` is the fencing token of its holder.

    A batch that a reader leaves unfinished is continued by the next one, so ``began_at`` and ``rows`` may be the work
    of several readers.

    While a batch is read in parts, each part that is not read to its end has a lease. That of the whole, which is not
    offered meanwhile, has what concerns all of them, and the rows of those that have ended.
    """

    # Its index is that of the constraint.
    pipeline = models.ForeignKey(Pipeline, on_delete=models.CASCADE, related_name="leases", db_index=False)
    part = models.PositiveSmallIntegerField(default=0, help_text="Number of the part; 0 is the whole.")
    part_end = models.TextField(blank=True, help_text="JSON: where the part ends. Empty for the whole.")
    parts = models.PositiveSmallIntegerField(
        default=0,
        help_text="Of the whole: how many parts the batch has that is read now; 0 when it is read in one piece.",
    )
    reading = models.CharField(max_length=20, choices=[(reading.value, reading.value) for reading in Reading])
    input = models.JSONField(help_text="The input's configuration, as it was published.")
    options_version = models.PositiveSmallIntegerField(default=1, help_text="Schema version of its options.")
    breakpoint = models.TextField(
        blank=True, help_text="JSON: where a reader would begin now. Empty before anything was read."
    )
    visible_at = models.DateTimeField(default=timezone.now)
    holder = models.CharField(max_length=200, blank=True)
    token = models.UUIDField(null=True, blank=True)
    locked_until = models.DateTimeField(null=True, blank=True)
    ends_at = models.DateTimeField(
        null=True, blank=True, help_text="When a batch is considered to have taken too long."
    )
    failure = models.TextField(blank=True, help_text="Why the input cannot be read at the moment.")
    failing_since = models.DateTimeField(null=True, blank=True)
    began_at = models.DateTimeField(
        null=True, blank=True, help_text="When the first reader of this batch or stream began; empty between batches."
    )
    rows = models.BigIntegerField(default=0, help_text="What has been read since then.")
    earlier_rows = models.BigIntegerField(default=0, help_text="What readers before the current one have read of it.")
    estimate = models.BigIntegerField(
        null=True, blank=True, help_text="Rows that the batch is expected to have, or that wait in the stream."
    )
    last_began_at = models.DateTimeField(null=True, blank=True, help_text="When the last complete batch began.")
    last_ended_at = models.DateTimeField(null=True, blank=True)
    last_rows = models.BigIntegerField(null=True, blank=True)

    class Meta:
        db_table = "pipelines_inputlease"
        indexes = [models.Index(fields=["reading", "visible_at"], name="lease_offered")]
        constraints = [models.UniqueConstraint(fields=["pipeline", "part"], name="lease_of_part")]

    def __str__(self) -> str:
        return f"{self.pipeline}: {self.reading}"
