from django.contrib import admin

from backend.apps.audit.admin_bases import ReadOnlyAdmin
from backend.apps.connectors.models import Connector


@admin.register(Connector)
class ConnectorAdmin(ReadOnlyAdmin[Connector]):
    """Read-only; changes go through the API, which knows each type's rules. Secrets are masked."""

    list_display = ["name", "type", "workspace", "updated_at"]
    list_filter = ["type", "workspace"]
    search_fields = ["name"]
    fields = ("name", "type", "workspace", "connection", "created_by", "created_at", "updated_at")
