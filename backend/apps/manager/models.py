from django.db import models
from django.utils import timezone

from backend.apps.pipelines.models import Pipeline
from backend.domain.capabilities import Reading


class InputLease(models.Model):
    """An input that the data plane reads, and its current reader. It can be claimed from ``visible_at`` on, and again
    once ``locked_until`` has passed; ``token`` is the fencing token of its holder."""

    pipeline = models.OneToOneField(Pipeline, on_delete=models.CASCADE, primary_key=True, related_name="lease")
    reading = models.CharField(max_length=20, choices=[(reading.value, reading.value) for reading in Reading])
    input = models.JSONField(help_text="The input's configuration, as it was put in force.")
    breakpoint = models.TextField(blank=True, help_text="JSON: where the next batch begins. Empty before the first.")
    visible_at = models.DateTimeField(default=timezone.now)
    holder = models.CharField(max_length=200, blank=True)
    token = models.UUIDField(null=True, blank=True)
    locked_until = models.DateTimeField(null=True, blank=True)
    ends_at = models.DateTimeField(null=True, blank=True, help_text="When a batch has taken too long.")
    failure = models.TextField(blank=True, help_text="Why the last batch could not be read.")

    class Meta:
        db_table = "pipelines_inputlease"
        indexes = [models.Index(fields=["reading", "visible_at"], name="lease_offered")]

    def __str__(self) -> str:
        return f"{self.pipeline}: {self.reading}"
