from django.contrib import admin

from backend.apps.audit.admin_bases import ReadOnlyAdmin
from backend.apps.usage.models import UsageMinute


@admin.register(UsageMinute)
class UsageMinuteAdmin(ReadOnlyAdmin[UsageMinute]):
    list_display = ["minute", "pipeline_id", "output", "deliveries", "bytes"]
