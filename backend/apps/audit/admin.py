from django.contrib import admin

from backend.apps.audit.admin_bases import ReadOnlyAdmin
from backend.apps.audit.models import AuditEntry


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnlyAdmin[AuditEntry]):
    list_display = ["at", "actor", "action", "object_name", "workspace_id"]
    list_filter = ["at", "action"]
    search_fields = ["actor", "action", "object_name", "object_id"]
    search_help_text = "Actor, action, or name or id of what was changed"
