import django_filters
from django.db.models import QuerySet

from backend.apps.exports.models import Export
from backend.apps.rest.filters import InstantFilter


class ExportFilter(django_filters.FilterSet):
    pipeline = django_filters.UUIDFilter(field_name="pipeline_id")
    since = InstantFilter(field_name="created_at", lookup_expr="gte")
    until = InstantFilter(field_name="created_at", lookup_expr="lt")
    search = django_filters.CharFilter(method="by_text", label="Part of the file's name, or of the error.")

    class Meta:
        model = Export
        fields = ["state", "output", "reason"]

    def by_text(self, exports: QuerySet[Export], _name: str, value: str) -> QuerySet[Export]:
        return exports.filter(path__icontains=value) | exports.filter(error__icontains=value)
