from django.db import models

from backend.apps.connectors.models import Connector


class WrittenCollection(models.Model):
    """A collection that has a table. If its files are missing, they cannot be reached: it is not empty."""

    collection = models.OneToOneField(Connector, on_delete=models.CASCADE, primary_key=True, related_name="+")

    def __str__(self) -> str:
        return str(self.collection_id)
