from django.contrib import admin

from backend.apps.usage.models import UsageMinute


@admin.register(UsageMinute)
class UsageMinuteAdmin(admin.ModelAdmin[UsageMinute]):
    list_display = ["minute", "pipeline_id", "output", "deliveries", "bytes"]

    def has_add_permission(self, request: object) -> bool:
        return False

    def has_change_permission(self, request: object, obj: object = None) -> bool:
        return False
