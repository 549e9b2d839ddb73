from django.db import models
from uuid_utils.compat import uuid7

from backend.apps.workspaces.models import User, Workspace


class Connector(models.Model):
    """A system that pipelines use: address and credentials, saved once.

    ``connection`` is the type's configuration with a mask in place of each secret; the
    secrets themselves are sealed in StoredSecret.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="connectors")
    name = models.CharField(max_length=100)
    type = models.CharField(max_length=50)
    connection = models.JSONField()
    schema_version = models.PositiveSmallIntegerField(help_text="Schema version of the stored connection.")
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["workspace", "name"], name="connector_name_in_workspace")]

    def __str__(self) -> str:
        return self.name


class StoredSecret(models.Model):
    """A connector's secrets, sealed (see secrets.py): stored here, or in Vault as a version of its entry."""

    connector = models.OneToOneField(Connector, on_delete=models.CASCADE, primary_key=True, related_name="secret")
    sealed = models.BinaryField(null=True)
    vault_version = models.PositiveIntegerField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(sealed=None) ^ models.Q(vault_version=None), name="secret_in_one_place"
            )
        ]

    def __str__(self) -> str:
        return f"Secrets of {self.connector_id}"
