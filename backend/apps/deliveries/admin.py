from django.contrib import admin

from backend.apps.deliveries.models import DeadLetter, OutputEvent
from backend.apps.pipelines.admin_names import OfPipelineAdmin


@admin.register(DeadLetter)
class DeadLetterAdmin(OfPipelineAdmin[DeadLetter]):
    list_display = ["message_id", "pipeline", "output", "state", "reason", "error", "attempts", "due_at", "first_at"]
    list_filter = ["state", "stage", "first_at"]
    search_fields = ["message_id__exact", "pipeline_id", "output", "reason", "error"]
    search_help_text = "Message, pipeline, output, reason or error"
    exclude = ["key", "body"]


@admin.register(OutputEvent)
class OutputEventAdmin(OfPipelineAdmin[OutputEvent]):
    list_display = ["at", "pipeline", "output", "state", "until", "cause"]
    list_filter = ["state", "at"]
    search_fields = ["pipeline_id", "output", "cause"]
    search_help_text = "Pipeline, output or cause"
