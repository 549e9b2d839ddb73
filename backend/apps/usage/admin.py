from django.contrib import admin

from backend.apps.pipelines.admin_names import OfPipelineAdmin
from backend.apps.usage.models import UsageMinute


@admin.register(UsageMinute)
class UsageMinuteAdmin(OfPipelineAdmin[UsageMinute]):
    list_display = ["minute", "pipeline", "output", "deliveries", "bytes"]
    list_filter = ["minute"]
    search_fields = ["pipeline_id", "output"]
    search_help_text = "Pipeline or output"
