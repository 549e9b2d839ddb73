from django.contrib import admin
from django.http import HttpRequest

from backend.apps.audit.admin_bases import AuditedAdmin, ReadOnlyAdmin
from backend.apps.jobs.models import RESOURCES, LostMessages, SparkJob


@admin.register(SparkJob)
class SparkJobAdmin(AuditedAdmin[SparkJob]):
    list_display = ["name", "desired", "status", "problem", "started_at", "failures", "restarts"]
    list_filter = ["status", "desired"]
    fields = ["name", "stages", *RESOURCES, "desired", "status", "started_at", "failures", "restarts", "last_error"]
    readonly_fields = ["status", "started_at", "failures", "restarts", "last_error"]

    def has_delete_permission(self, request: HttpRequest, obj: SparkJob | None = None) -> bool:
        return False  # its application would keep running unsupervised


@admin.register(LostMessages)
class LostMessagesAdmin(ReadOnlyAdmin[LostMessages]):
    list_display = ["stage", "partition", "first_offset", "count", "at"]
    list_filter = ["stage", "at"]
