from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone
from uuid_utils.compat import uuid7

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
    state = models.CharField(max_length=20, choices=State.choices, default=State.PENDING)
    attempts = models.PositiveSmallIntegerField(default=0)
    error = models.TextField(blank=True)
    result = models.JSONField(default=dict, help_text="What it made, so that it can be taken back.")

    class Meta:
        ordering = ["pk"]
        constraints = [models.UniqueConstraint(fields=["provisioning", "kind"], name="step_kind_in_provisioning")]

    def __str__(self) -> str:
        return f"{self.kind}: {self.state}"


class Removal(models.Model):
    """Resources of a deleted pipeline that still exist in other systems."""

    pipeline_id = models.UUIDField(primary_key=True)
    attempts = models.PositiveIntegerField(default=0)
    error = models.TextField(blank=True)
    next_try_at = models.DateTimeField()

    def __str__(self) -> str:
        return str(self.pipeline_id)


class PipelineVersion(models.Model):
    """One saved configuration. It is immutable, except that the id from the schema registry is added later."""

    pipeline = models.ForeignKey(Pipeline, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    config = models.JSONField()
    schema_version = models.PositiveSmallIntegerField(help_text="Of the form in which the configuration is stored.")
    connectors = ArrayField(models.UUIDField(), default=list, help_text="Every connector that it uses.")
    breakers = ArrayField(
        models.CharField(max_length=80), default=list, help_text="Names of its circuit breakers and rate limits."
    )
    schema_id = models.PositiveIntegerField(
        null=True, blank=True, help_text="By which the schema registry knows the Avro schema of stream processing."
    )
    author = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-number"]
        constraints = [models.UniqueConstraint(fields=["pipeline", "number"], name="version_number_in_pipeline")]

    def __str__(self) -> str:
        return f"Version {self.number}"

    def load(self) -> PipelineConfig:
        """Raises UnreadableConfigError."""
        return PipelineConfig.load_stored(self.config, self.schema_version)
