from django.contrib import admin

from backend.apps.exports.models import Export, StagedPart
from backend.apps.pipelines.admin_names import OfPipelineAdmin


@admin.register(Export)
class ExportAdmin(OfPipelineAdmin[Export]):
    list_display = ["path", "pipeline", "output", "number", "state", "rows", "reason", "created_at"]
    list_filter = ["state", "created_at"]
    search_fields = ["path", "pipeline_id", "output", "reason"]
    search_help_text = "File, pipeline, output or reason"
    exclude = ["preview"]


@admin.register(StagedPart)
class StagedPartAdmin(OfPipelineAdmin[StagedPart]):
    list_display = ["id", "pipeline", "output", "version", "rows", "taken", "users", "staged_at"]
    list_filter = ["staged_at"]
    search_fields = ["pipeline_id", "output"]
    search_help_text = "Pipeline or output"
