import django_filters

from backend.apps.audit.models import AuditEntry
from backend.apps.rest.filters import InstantFilter


class AuditFilter(django_filters.FilterSet):
    action = django_filters.CharFilter(
        lookup_expr="startswith", help_text="A prefix: connector also matches connector.update."
    )
    since = InstantFilter("at", "gte")
    until = InstantFilter("at", "lt")

    class Meta:
        model = AuditEntry
        fields = ["actor", "object_id"]
