import csv
import json

import django_filters
from django.db.models import QuerySet
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request

from backend.apps.audit.api.serializers import AuditEntrySerializer
from backend.apps.audit.models import AuditEntry
from backend.apps.workspaces.api.base import workspace_of
from backend.apps.workspaces.api.filters import InstantFilter
from backend.apps.workspaces.models import Role

_MOST_EXPORTED = 100_000


class AuditFilter(django_filters.FilterSet):
    action = django_filters.CharFilter(lookup_expr="startswith", help_text="connector finds connector.update too.")
    since = InstantFilter("at", "gte")
    until = InstantFilter("at", "lt")

    class Meta:
        model = AuditEntry
        fields = ["actor", "object_id"]


class AuditViewSet(mixins.ListModelMixin, viewsets.GenericViewSet[AuditEntry]):
    """Who did what in this workspace, newest first."""

    queryset = AuditEntry.objects.none()
    serializer_class = AuditEntrySerializer
    filterset_class = AuditFilter
    search_fields = ["actor", "action", "object_name", "object_id"]
    roles = {"list": Role.ADMIN, "export": Role.ADMIN}

    def get_queryset(self) -> QuerySet[AuditEntry]:
        return AuditEntry.objects.filter(workspace_id=workspace_of(self.request).pk)

    @extend_schema(responses={(200, "text/csv"): OpenApiTypes.STR})
    @action(detail=False, pagination_class=None)
    def export(self, request: Request) -> HttpResponse:
        """The same as CSV, at most 100,000 entries; changes are JSON."""
        answer = HttpResponse(content_type="text/csv; charset=utf-8")
        answer["Content-Disposition"] = 'attachment; filename="headrace-audit.csv"'
        columns = list(AuditEntrySerializer().fields)
        writer = csv.DictWriter(answer, columns)
        writer.writeheader()
        for entry in self.filter_queryset(self.get_queryset())[:_MOST_EXPORTED]:
            row = AuditEntrySerializer(entry).data
            writer.writerow({**row, "changes": json.dumps(row["changes"])})
        return answer
