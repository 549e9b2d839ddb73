from django.db import models
from django.db.models.functions import Lower
from uuid_utils.compat import uuid7

from backend.apps.connectors.models import Connector
from backend.apps.pipelines.models import Pipeline
from backend.apps.workspaces.models import User, Workspace


class SqlSecret(models.Model):
    """A secret that statements refer to as ``${secret:name}``, sealed like those of connectors."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=100)
    sealed = models.BinaryField()
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["workspace", "name"], name="sql_secret_name_in_workspace")]

    def __str__(self) -> str:
        return self.name


class SqlStatement(models.Model):
    """A statement that was executed, with masks in place of the values that may be secrets."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="+")
    actor = models.CharField(max_length=200)
    at = models.DateTimeField(auto_now_add=True)
    text = models.TextField()
    error = models.TextField(blank=True, help_text="Why it failed; empty when it succeeded.")

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["workspace", "-id"], name="sql_statement_of_workspace")]

    def __str__(self) -> str:
        return self.text


class SqlSource(models.Model):
    """A stream or table."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=100)
    topic = models.CharField(max_length=249)
    definition = models.TextField(help_text="The statement that declares it.")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint("workspace", Lower("name"), name="sql_source_name_in_workspace"),
        ]
        indexes = [models.Index(fields=["topic"], name="sql_source_by_topic")]

    def __str__(self) -> str:
        return self.name


class SqlImport(models.Model):
    """A table of a database that a connector brings into a topic and declares as a table of Connect SQL."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    connector = models.ForeignKey(Connector, on_delete=models.CASCADE, related_name="+")
    table = models.CharField(max_length=200)
    topic = models.CharField(max_length=249)
    pipeline = models.ForeignKey(Pipeline, null=True, on_delete=models.SET_NULL, related_name="+")
    source = models.OneToOneField(
        SqlSource, null=True, on_delete=models.SET_NULL, related_name="+", help_text="Empty if it was dropped."
    )
    problem = models.TextField(blank=True, help_text="Why it is not declared, or does not follow the database's table.")

    class Meta:
        ordering = ["table"]
        constraints = [models.UniqueConstraint(fields=["connector", "table"], name="sql_import_of_table")]

    def __str__(self) -> str:
        return self.table


class SqlQuery(models.Model):
    """A query, persistent or as long as its rows are read, and how the application that runs it says it does."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=200, help_text="The id by which statements name it.")
    statement = models.TextField()
    sink = models.ForeignKey(SqlSource, null=True, blank=True, on_delete=models.PROTECT, related_name="writers")
    pipeline = models.OneToOneField(
        Pipeline,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="+",
        help_text="The pipeline whose stream processing it is.",
    )
    makes_sink = models.BooleanField(help_text="Whether the statement made the sink too.")
    reads = models.ManyToManyField(SqlSource, related_name="readers")
    plan = models.JSONField(null=True, help_text="What Spark does; empty of a query that the console reads by itself.")
    read_until = models.DateTimeField(
        null=True, help_text="When a query that is read ends, unless its reader is still there; empty of others."
    )
    revision = models.PositiveIntegerField(default=1, help_text="Raised when the plan changes.")
    created_at = models.DateTimeField(auto_now_add=True)

    running = models.BooleanField(default=False)
    error = models.TextField(blank=True, help_text="Why it failed last; empty once it runs well again.")
    failures = models.PositiveIntegerField(default=0)
    rows_per_second = models.FloatField(default=0)
    behind = models.BigIntegerField(default=0, help_text="Rows that wait.")
    state_rows = models.BigIntegerField(default=0)
    state_bytes = models.BigIntegerField(default=0)
    reported_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["id"]
        verbose_name_plural = "SQL queries"
        constraints = [models.UniqueConstraint(fields=["workspace", "name"], name="sql_query_name_in_workspace")]

    def __str__(self) -> str:
        return self.name
