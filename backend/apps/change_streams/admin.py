from django.contrib import admin

from backend.apps.audit.admin_bases import ReadOnlyAdmin
from backend.apps.change_streams.models import ChangeStreamState


@admin.register(ChangeStreamState)
class ChangeStreamStateAdmin(ReadOnlyAdmin[ChangeStreamState]):
    list_display = ("connector", "timestamp", "num_records", "error", "changed_at")
    list_select_related = ("connector",)
