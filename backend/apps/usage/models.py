from django.db import models


class UsageMinute(models.Model):
    """Deliveries of an output within one minute, aggregated from billing events."""

    workspace_id = models.UUIDField()
    pipeline_id = models.UUIDField()
    output = models.CharField(max_length=63)
    minute = models.DateTimeField()
    deliveries = models.BigIntegerField()
    bytes = models.BigIntegerField()

    class Meta:
        verbose_name = "minute of usage"
        verbose_name_plural = "usage by minute"
        constraints = [
            models.UniqueConstraint(fields=["pipeline_id", "output", "minute"], name="one_usage_row_per_minute")
        ]
        indexes = [models.Index(fields=["workspace_id", "minute"], name="usage_by_workspace")]

    def __str__(self) -> str:
        return f"{self.pipeline_id}/{self.output} {self.minute}: {self.deliveries}"
