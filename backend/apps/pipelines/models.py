from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone
from uuid_utils.compat import uuid7

from backend.apps.connectors.models import Connector
from backend.apps.workspaces.models import User, Workspace
from backend.domain.pipeline import PipelineConfig


class Pipeline(models.Model):
    """A pipeline: its versions define what it does, and ``published`` is the active one.

    ``failure`` is why that one cannot run, as recorded when the data plane last fetched it.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="pipelines")
    name = models.CharField(max_length=100)
    published = models.ForeignKey("PipelineVersion", on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    published_at = models.DateTimeField(null=True, help_text="When that version was published.")
    paused = models.BooleanField(default=False)
    failure = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["workspace", "name"], name="pipeline_name_in_workspace")]

    def __str__(self) -> str:
        return self.name


class Provisioning(models.Model):
    """The saga that creates resources in other systems before a version is published."""

    class State(models.TextChoices):
        PROVISIONING = "provisioning"
        ACTIVE = "active"
        FAILED = "failed"

    pipeline = models.ForeignKey(Pipeline, on_delete=models.CASCADE, related_name="provisionings")
    version = models.ForeignKey("PipelineVersion", on_delete=models.CASCADE, related_name="provisionings")
    state = models.CharField(max_length=20, choices=State.choices, default=State.PROVISIONING)
    cause = models.TextField(blank=True, help_text="Why it failed.")
    next_try_at = models.DateTimeField(default=timezone.now)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["pipeline"], condition=models.Q(state="provisioning"), name="one_provisioning_at_a_time"
            )
        ]

    def __str__(self) -> str:
        return f"{self.version}: {self.state}"


class ProvisioningStep(models.Model):
    """One resource in another system; removed again if a later step fails."""

    class State(models.TextChoices):
        PENDING = "pending"
        DONE = "done"
        FAILED = "failed"
        UNDONE = "undone"

    provisioning = models.ForeignKey(Provisioning, on_delete=models.CASCADE, related_name="steps")
    kind = models.CharField(max_length=20)
    place = models.CharField(max_length=100, blank=True, help_text="The use of a connector that it prepares.")
    state = models.CharField(max_length=20, choices=State.choices, default=State.PENDING)
    attempts = models.PositiveSmallIntegerField(default=0)
    error = models.TextField(blank=True)
    field = models.CharField(
        max_length=200, blank=True, help_text="Field of the pipeline that the error is about, such as config.input."
    )
    result = models.JSONField(default=dict, help_text="What it created, so that it can be removed again.")

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(fields=["provisioning", "kind", "place"], name="step_kind_in_provisioning")
        ]

    def __str__(self) -> str:
        return f"{self.kind}: {self.state}"


class Registration(models.Model):
    """What a connector's capability Register made for a use of it, or may have made. It outlives its pipeline, until
    it is removed."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="+")
    pipeline_id = models.UUIDField(db_index=True)
    connector = models.ForeignKey(Connector, on_delete=models.RESTRICT, related_name="registrations")
    place = models.CharField(max_length=100, help_text="The use, by its place in the pipeline.")
    options = models.JSONField(default=dict, help_text="Options with which it was made last.")
    options_version = models.PositiveSmallIntegerField(default=1, help_text="Schema version of these options.")
    made = models.JSONField(null=True, help_text="What was made; empty until all of it was.")
    warning = models.TextField(blank=True, help_text="What endangers it, or why that cannot be determined.")
    measures = models.JSONField(default=dict, help_text="Numbers about it, by their names.")
    remove_at = models.DateTimeField(null=True, help_text="When its removal is tried next, if nothing needs it.")
    attempts = models.PositiveIntegerField(default=0, help_text="Removals that failed.")
    error = models.TextField(blank=True, help_text="Why the last removal failed.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["pipeline_id", "connector", "place"], name="one_registration_for_a_use")
        ]

    def __str__(self) -> str:
        return f"{self.place} of {self.pipeline_id} in {self.connector}"

    @property
    def name(self) -> str:
        """By which the other system knows it: fit for an SQL identifier."""
        return f"headrace_{self.pk.hex}"


class Removal(models.Model):
    """Resources of a deleted pipeline that still exist in other systems."""

    pipeline_id = models.UUIDField(primary_key=True)
    attempts = models.PositiveIntegerField(default=0)
    error = models.TextField(blank=True)
    next_try_at = models.DateTimeField()

    def __str__(self) -> str:
        return str(self.pipeline_id)


class PipelineVersion(models.Model):
    """One saved configuration. It is immutable, except that the id from the schema registry and the note
    are added later."""

    pipeline = models.ForeignKey(Pipeline, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    config = models.JSONField()
    schema_version = models.PositiveSmallIntegerField(help_text="Schema version of the stored configuration.")
    option_versions = models.JSONField(
        default=dict,
        help_text="By the path of each use: connector type, capability, and schema version of the stored options.",
    )
    connectors = ArrayField(models.UUIDField(), default=list, help_text="Every connector that it uses.")
    breakers = ArrayField(
        models.CharField(max_length=80), default=list, help_text="Names of its circuit breakers and rate limits."
    )
    stages = ArrayField(
        models.CharField(max_length=50), default=list, help_text="Names of the stages that its messages need."
    )
    schema_id = models.PositiveIntegerField(
        null=True, blank=True, help_text="ID of the Avro schema in the schema registry."
    )
    author = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    note = models.CharField(max_length=500, blank=True, help_text="What it changes and why, as said when publishing.")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-number"]
        constraints = [models.UniqueConstraint(fields=["pipeline", "number"], name="version_number_in_pipeline")]

    def __str__(self) -> str:
        return f"Version {self.number}"

    def load(self) -> PipelineConfig:
        """Raises UnreadableConfigError."""
        return PipelineConfig.load_stored(self.config, self.schema_version, self.option_versions)
