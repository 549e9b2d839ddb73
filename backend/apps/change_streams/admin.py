from django.contrib import admin

from backend.apps.change_streams.models import ChangeStreamState


@admin.register(ChangeStreamState)
class ChangeStreamStateAdmin(admin.ModelAdmin[ChangeStreamState]):
    list_display = ("connector", "timestamp", "num_records", "error", "changed_at")
    list_select_related = ("connector",)

    def has_add_permission(self, request: object) -> bool:
        return False

    def has_change_permission(self, request: object, obj: ChangeStreamState | None = None) -> bool:
        return False
