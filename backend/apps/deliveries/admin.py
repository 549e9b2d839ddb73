from django.contrib import admin

from backend.apps.deliveries.models import DeadLetter, OutputEvent


@admin.register(DeadLetter)
class DeadLetterAdmin(admin.ModelAdmin[DeadLetter]):
    list_display = ["id", "pipeline_id", "output", "state", "reason", "attempts", "due_at", "first_at"]
    list_filter = ["state", "reason"]
    exclude = ["key", "body"]

    def has_add_permission(self, request: object) -> bool:
        return False

    def has_change_permission(self, request: object, obj: object = None) -> bool:
        return False


@admin.register(OutputEvent)
class OutputEventAdmin(admin.ModelAdmin[OutputEvent]):
    list_display = ["at", "pipeline_id", "output", "state", "cause"]
    list_filter = ["state"]

    def has_add_permission(self, request: object) -> bool:
        return False

    def has_change_permission(self, request: object, obj: object = None) -> bool:
        return False
