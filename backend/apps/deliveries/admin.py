from django.contrib import admin

from backend.apps.audit.admin_bases import ReadOnlyAdmin
from backend.apps.deliveries.models import DeadLetter, OutputEvent


@admin.register(DeadLetter)
class DeadLetterAdmin(ReadOnlyAdmin[DeadLetter]):
    list_display = ["id", "pipeline_id", "output", "state", "reason", "attempts", "due_at", "first_at"]
    list_filter = ["state", "reason"]
    exclude = ["key", "body"]


@admin.register(OutputEvent)
class OutputEventAdmin(ReadOnlyAdmin[OutputEvent]):
    list_display = ["at", "pipeline_id", "output", "state", "cause"]
    list_filter = ["state"]
