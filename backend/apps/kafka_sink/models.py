from django.db import models


class SinkOffset(models.Model):
    """The next offset of a partition to write to the database, updated in the same transaction as the data."""

    sink = models.CharField(max_length=50)
    partition = models.PositiveIntegerField()
    next_offset = models.BigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["sink", "partition"], name="one_offset_per_partition")]

    def __str__(self) -> str:
        return f"{self.sink}[{self.partition}] @ {self.next_offset}"


class KnownTopic(models.Model):
    """One of Headrace's topics, with the id that Kafka gave it: a topic that is created again has another."""

    name = models.CharField(max_length=249, primary_key=True)
    topic_id = models.CharField(max_length=50)

    def __str__(self) -> str:
        return f"{self.name}: {self.topic_id}"


class QuarantinedRecord(models.Model):
    """A record that could not be written to the database because of what is in it, kept whole."""

    sink = models.CharField(max_length=50, help_text="The worker that could not write it.")
    position = models.CharField(
        max_length=300, help_text="Topic, partition and offset in Kafka, or stream and entry in Redis."
    )
    reason = models.CharField(max_length=100, help_text="The kind of error.")
    error = models.TextField()
    key = models.BinaryField()
    value = models.BinaryField()
    headers = models.JSONField(default=list, help_text="Name and value of each header; values in base64.")
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["sink", "position"], name="quarantined_once")]
        indexes = [models.Index(fields=["sink", "reason"], name="quarantined_by_reason")]

    def __str__(self) -> str:
        return f"{self.position}: {self.reason}"
