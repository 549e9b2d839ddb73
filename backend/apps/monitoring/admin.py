from django.contrib import admin

from backend.apps.audit.admin_bases import AuditedAdmin, ReadOnlyAdmin
from backend.apps.monitoring.models import Alert, AlertRule


@admin.register(AlertRule)
class AlertRuleAdmin(AuditedAdmin[AlertRule]):
    list_display = ["name", "workspace", "kind", "threshold", "enabled"]
    list_filter = ["workspace", "kind", "enabled"]
    search_fields = ["name"]


@admin.register(Alert)
class AlertAdmin(ReadOnlyAdmin[Alert]):
    list_display = ["message", "rule", "started_at", "ended_at"]
    list_filter = ["rule__kind", "started_at", ("ended_at", admin.EmptyFieldListFilter)]
    list_select_related = ["rule"]
    search_fields = ["message", "rule__name"]
