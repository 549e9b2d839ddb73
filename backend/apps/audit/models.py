from django.db import models
from uuid_utils.compat import uuid7


class AuditEntry(models.Model):
    """Who did what to which object, and what it changed. A database trigger rejects updates and deletions of entries.

    Entries copy names as they were and have no foreign keys, so that they outlive the rows they describe.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    at = models.DateTimeField(auto_now_add=True)
    workspace_id = models.UUIDField(null=True, help_text="Empty if the entry concerns the whole installation.")
    actor = models.CharField(max_length=200, help_text="User name, or the name given in a failed sign-in.")
    action = models.CharField(max_length=50, help_text="Such as connector.update.")
    object_id = models.CharField(max_length=100, blank=True)
    object_name = models.CharField(max_length=200, blank=True)
    changes = models.JSONField(default=list, help_text="path, before and after of each change; secrets as CHANGED.")

    class Meta:
        verbose_name_plural = "audit entries"
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["workspace_id", "-id"], name="audit_of_workspace"),
            models.Index(fields=["object_id"], name="audit_of_object"),
        ]

    def __str__(self) -> str:
        return f"{self.at} {self.actor} {self.action} {self.object_name}"
