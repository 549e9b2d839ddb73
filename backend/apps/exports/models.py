from django.db import models
from uuid_utils.compat import uuid7


class StagingPosition(models.Model):
    """How far a partition of the exporter's topic is staged. It is stored with the parts that were staged, so that
    what is read again is staged once."""

    partition = models.PositiveIntegerField(primary_key=True)
    offset = models.BigIntegerField(help_text="Of the next record that is to be staged.")

    def __str__(self) -> str:
        return f"{self.partition}: {self.offset}"


class StagedPart(models.Model):
    """Staged messages of one output and version: a Parquet file below the staging URL. Its rows go into one file or
    into several; ``users`` counts those of them that may still have to read it."""

    # No foreign keys: pipelines may be deleted.
    workspace_id = models.UUIDField()
    pipeline_id = models.UUIDField()
    output = models.CharField(max_length=63)
    version = models.PositiveIntegerField()
    path = models.CharField(max_length=300, unique=True, help_text="Relative to the staging URL.")
    rows = models.PositiveIntegerField()
    bytes = models.PositiveBigIntegerField(help_text="Of the message bodies.")
    taken = models.PositiveIntegerField(default=0, help_text="Rows that are in files, counted from the first.")
    users = models.PositiveIntegerField(default=0)
    staged_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["pipeline_id", "output", "version"],
                condition=models.Q(taken__lt=models.F("rows")),
                name="staged_part_waiting",
            ),
            models.Index(fields=["id"], condition=models.Q(taken=models.F("rows"), users=0), name="staged_part_unused"),
        ]

    def __str__(self) -> str:
        return self.path


class Export(models.Model):
    """A file that is or was to be stored. What it contains and what it is called never change, so that it can be
    written again from the beginning."""

    class State(models.TextChoices):
        STAGED = "staged", "Staged: it will be written"
        WRITING = "writing"
        COMMITTED = "committed"
        FAILED = "failed"
        ABORTED = "aborted"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    # No foreign keys: pipelines and connectors may be deleted.
    workspace_id = models.UUIDField()
    pipeline_id = models.UUIDField()
    output = models.CharField(max_length=63)
    version = models.PositiveIntegerField(help_text="Version of the pipeline by which it is written.")
    connector_id = models.UUIDField(null=True)
    number = models.PositiveIntegerField(help_text="Counts the files of the output.")
    path = models.CharField(max_length=2000, help_text="Name of the file in the store.")
    rows = models.PositiveBigIntegerField(help_text="Messages.")
    bytes = models.PositiveBigIntegerField(help_text="Of the message bodies, before formatting and compression.")
    slices = models.JSONField(help_text="Its staged parts, in order: id, path, first row, rows.")
    created_at = models.DateTimeField(auto_now_add=True)

    state = models.CharField(max_length=10, choices=State.choices, default=State.STAGED)
    written_rows = models.PositiveBigIntegerField(default=0)
    upload = models.JSONField(null=True, help_text="The store's handle of what is being written.")
    manifest = models.JSONField(null=True, help_text="What the file contains; from then on it may be visible.")
    preview = models.JSONField(null=True, help_text="The first rows.")
    committed_at = models.DateTimeField(null=True)
    closed_at = models.DateTimeField(null=True, help_text="When it was committed or aborted.")
    reason = models.CharField(max_length=100, blank=True)
    error = models.TextField(blank=True)
    failures = models.PositiveIntegerField(default=0)
    due_at = models.DateTimeField(null=True, help_text="When it is tried next; empty: not automatically.")

    holder = models.CharField(max_length=200, blank=True)
    token = models.UUIDField(null=True, help_text="Fencing token of its writer.")
    locked_until = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["pipeline_id", "output", "number"], name="export_number_of_output"),
            models.UniqueConstraint(fields=["connector_id", "path"], name="one_export_per_file"),
        ]
        indexes = [
            models.Index(fields=["workspace_id", "-id"], name="export_by_workspace"),
            models.Index(
                fields=["due_at"],
                condition=models.Q(due_at__isnull=False),
                name="export_due",
            ),
            models.Index(fields=["closed_at"], condition=models.Q(closed_at__isnull=False), name="export_closed"),
            models.Index(
                fields=["pipeline_id", "output"],
                condition=models.Q(failures__gt=0, state__in=["staged", "writing", "failed"]),
                name="export_unstored",
            ),
        ]

    def __str__(self) -> str:
        return self.path

    @property
    def can_be_written(self) -> bool:
        """Whether its messages are kept, so that it can be written from the beginning; it may have none."""
        return not self.rows or bool(self.slices)


class StoredName(models.Model):
    """Name of a file whose export was removed by retention, so that no other file takes it and replaces this one."""

    connector_id = models.UUIDField()
    path = models.CharField(max_length=2000)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["connector_id", "path"], name="stored_name_of_connector")]

    def __str__(self) -> str:
        return self.path
