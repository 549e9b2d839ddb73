from django.db import models

from backend.apps.connectors.models import Connector


class ChangeStreamState(models.Model):
    """What the worker last reported of a change stream."""

    connector = models.OneToOneField(Connector, on_delete=models.CASCADE, primary_key=True, related_name="+")
    timestamp = models.BigIntegerField(help_text="Time of the last transaction, -1 before the first one.")
    num_records = models.BigIntegerField(help_text="Updates of the last transaction.")
    error = models.TextField(blank=True, help_text="Why nothing can be sent; empty while the stream is sent.")
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        verbose_name = "change stream"

    def __str__(self) -> str:
        return str(self.connector_id)
