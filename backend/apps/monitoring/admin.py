from django.contrib import admin

from backend.apps.monitoring.models import Alert, AlertRule
from backend.apps.read_only_admin import ReadOnlyAdmin


@admin.register(AlertRule)
class AlertRuleAdmin(admin.ModelAdmin[AlertRule]):
    list_display = ["name", "workspace", "kind", "threshold", "enabled"]
    list_filter = ["kind", "enabled"]


@admin.register(Alert)
class AlertAdmin(ReadOnlyAdmin[Alert]):
    list_display = ["rule", "message", "started_at", "ended_at"]
