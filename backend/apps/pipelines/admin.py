from django.contrib import admin

from backend.apps.audit.admin_bases import ReadOnlyAdmin
from backend.apps.pipelines.models import Pipeline, PipelineVersion


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
    list_filter = ["workspace", "paused"]
    search_fields = ["name", "id"]
    fields = ("id", "name", "workspace", "published", "paused", "failure", "created_at", "updated_at")
    inlines = [VersionInline]
