from django.db import models
from uuid_utils.compat import uuid7

from backend.apps.workspaces.models import User, Workspace


class Pipeline(models.Model):
    """A pipeline: its versions say what it does, ``published`` which of them is in force.

    ``failure`` is why that one cannot work, as the manager found it when the data plane last asked.
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


class PipelineVersion(models.Model):
    """One saved configuration. Never changed."""

    pipeline = models.ForeignKey(Pipeline, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    config = models.JSONField()
    author = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-number"]
        constraints = [models.UniqueConstraint(fields=["pipeline", "number"], name="version_number_in_pipeline")]

    def __str__(self) -> str:
        return f"Version {self.number}"
