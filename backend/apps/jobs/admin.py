from django.contrib import admin
from django.http import HttpRequest

from backend.apps.audit.admin_bases import AuditedAdmin
from backend.apps.jobs.models import SparkJob


@admin.register(SparkJob)
class SparkJobAdmin(AuditedAdmin[SparkJob]):
    list_display = ["name", "desired", "status", "started_at", "failures", "restarts"]
    fields = ["name", "stages", "slots", "desired", "status", "started_at", "failures", "restarts", "last_error"]
    readonly_fields = ["status", "started_at", "failures", "restarts", "last_error"]

    def has_delete_permission(self, request: HttpRequest, obj: SparkJob | None = None) -> bool:
        return False  # its application would keep running unsupervised
