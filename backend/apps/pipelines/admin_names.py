"""Names instead of ids in the admin site's lists, for tables whose rows outlive their pipelines."""

from typing import Any, TypeVar

from django.contrib import admin
from django.db.models import Model, OuterRef, QuerySet, Subquery
from django.http import HttpRequest

from backend.apps.audit.admin_bases import ReadOnlyAdmin
from backend.apps.pipelines.models import Pipeline

M = TypeVar("M", bound=Model)


class OfPipelineAdmin(ReadOnlyAdmin[M]):
    """Rows with a ``pipeline_id``; lists may have the column ``pipeline``."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[M]:
        names = Pipeline.objects.filter(pk=OuterRef("pipeline_id")).values("name")
        rows: Any = super().get_queryset(request)
        named: QuerySet[M] = rows.annotate(pipeline_name=Subquery(names[:1]))
        return named

    @admin.display(ordering="pipeline_name")
    def pipeline(self, row: Any) -> Any:
        """The pipeline's name, or its id once it is deleted."""
        return row.pipeline_name or row.pipeline_id
