from django.db import models
from django.db.models.functions import Now

from backend.apps.workspaces.models import Workspace


class GatewayNode(models.Model):
    """A process of the read gateway; it lives as long as it says so."""

    id = models.PositiveIntegerField(primary_key=True)
    host = models.CharField(max_length=255)
    port = models.PositiveIntegerField()
    seen_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return f"{self.id} at {self.host}:{self.port}"


class ValueSchema(models.Model):
    """A version of the Avro schema of a collection's values. Its number is the id by which consumers ask for it."""

    id = models.AutoField(primary_key=True)
    collection = models.UUIDField()
    version = models.PositiveIntegerField()
    schema = models.TextField(help_text="JSON, as consumers get it.")
    registered_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["collection", "version"], name="one_schema_per_version"),
        ]

    def __str__(self) -> str:
        return f"{self.collection} version {self.version}"


class ConsumerGroup(models.Model):
    """A consumer group of the read gateway."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE)
    name = models.CharField(max_length=255)
    claim = models.BigIntegerField(default=0, help_text="Fencing token: grows whenever a node takes over the group.")
    state = models.JSONField(default=dict, help_text="Members and assignment after the last rebalance.")
    changed_at = models.DateTimeField(auto_now=True, help_text="When members or committed offsets last changed.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["workspace", "name"], name="one_group_per_name")]

    def __str__(self) -> str:
        return self.name


class CommittedOffset(models.Model):
    """The next offset that a group reads in one partition of a collection."""

    group = models.ForeignKey(ConsumerGroup, on_delete=models.CASCADE, related_name="offsets")
    collection = models.UUIDField()
    partition = models.PositiveIntegerField()
    offset = models.BigIntegerField()
    leader_epoch = models.IntegerField()
    metadata = models.BinaryField(help_text="Text of the consumer in UTF-8, which may hold any character.")
    committed_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["group", "collection", "partition"], name="one_offset_per_place")
        ]

    def __str__(self) -> str:
        return f"{self.group}: {self.collection}/{self.partition} @ {self.offset}"
