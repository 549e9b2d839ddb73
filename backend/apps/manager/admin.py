from django.contrib import admin

from backend.apps.audit.admin_bases import ReadOnlyAdmin
from backend.apps.manager.models import InputLease


@admin.register(InputLease)
class InputLeaseAdmin(ReadOnlyAdmin[InputLease]):
    """Who reads which input."""

    list_display = ["pipeline", "part", "reading", "holder", "locked_until", "visible_at", "failure"]
    list_filter = ["reading"]
    search_fields = ["pipeline__name", "pipeline__id", "holder"]
    fields = (
        "pipeline",
        "part",
        "parts",
        "reading",
        "holder",
        "locked_until",
        "visible_at",
        "ends_at",
        "breakpoint",
        "part_end",
        "failure",
    )
