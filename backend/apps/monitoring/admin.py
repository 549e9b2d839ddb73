from django.contrib import admin

from backend.apps.monitoring.models import Alert, AlertRule


@admin.register(AlertRule)
class AlertRuleAdmin(admin.ModelAdmin[AlertRule]):
    list_display = ["name", "workspace", "kind", "threshold", "enabled"]
    list_filter = ["kind", "enabled"]


@admin.register(Alert)
class AlertAdmin(admin.ModelAdmin[Alert]):
    list_display = ["rule", "message", "started_at", "ended_at"]

    def has_add_permission(self, request: object) -> bool:
        return False

    def has_change_permission(self, request: object, obj: object = None) -> bool:
        return False
