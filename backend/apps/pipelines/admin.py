from django.contrib import admin
from django.http import HttpRequest

from backend.apps.audit.admin_bases import AuditedAdmin, ReadOnlyAdmin
from backend.apps.pipelines.models import Pipeline, PipelineVersion, Registration


class VersionInline(admin.TabularInline[PipelineVersion, Pipeline]):
    model = PipelineVersion
    extra = 0
    fields = ("number", "author", "created_at", "config")
    readonly_fields = fields

    def has_add_permission(self, request: object, obj: object = None) -> bool:
        return False


@admin.register(Pipeline)
class PipelineAdmin(ReadOnlyAdmin[Pipeline]):
    """Read-only; changes go through the API, which validates and announces them."""

    list_display = ["name", "workspace", "published", "paused", "failure", "updated_at"]
    list_filter = ["workspace", "paused", ("failure", admin.EmptyFieldListFilter)]
    list_select_related = ["workspace", "published"]
    search_fields = ["name", "id"]
    fields = ("id", "name", "workspace", "published", "paused", "failure", "created_at", "updated_at")
    inlines = [VersionInline]


@admin.register(Registration)
class RegistrationAdmin(AuditedAdmin[Registration], ReadOnlyAdmin[Registration]):
    """What was made in other systems. Deleting one forgets it, for a system that no longer exists: nothing is removed
    there."""

    list_display = ["pipeline_id", "place", "connector", "warning", "remove_at", "attempts", "error"]
    list_filter = ["workspace"]
    search_fields = ["pipeline_id", "connector__name"]
    fields = (
        "id",
        "pipeline_id",
        "place",
        "connector",
        "options",
        "made",
        "warning",
        "measures",
        "remove_at",
        "attempts",
        "error",
    )

    def has_delete_permission(self, request: HttpRequest, obj: Registration | None = None) -> bool:
        """Only what is to be removed, and could not be."""
        return obj is not None and obj.remove_at is not None and obj.attempts > 0
