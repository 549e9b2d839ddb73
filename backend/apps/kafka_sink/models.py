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
