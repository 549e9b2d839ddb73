from django.contrib import admin

from backend.apps.audit.admin_bases import AuditedAdmin, ReadOnlyAdmin
from backend.apps.monitoring.models import Alert, AlertRule


@admin.register(AlertRule)
class AlertRuleAdmin(AuditedAdmin[AlertRule]):
    list_display = ["name", "workspace", "kind", "threshold", "enabled"]
    list_filter = ["kind", "enabled"]


@admin.register(Alert)
class AlertAdmin(ReadOnlyAdmin[Alert]):
    list_display = ["rule", "message", "started_at", "ended_at"]
