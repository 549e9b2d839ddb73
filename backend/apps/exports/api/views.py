from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, viewsets
from rest_framework.decorators import action
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from backend.apps.exports import selectors, services
from backend.apps.exports.api.filters import ExportFilter
from backend.apps.exports.api.serializers import (
    CloseSerializer,
    ExportDetailSerializer,
    ExportSerializer,
    RetryExportSerializer,
    WaitingSerializer,
)
from backend.apps.exports.models import Export
from backend.apps.pipelines.selectors import pipelines_of
from backend.apps.workspaces.api.base import actor_of, workspace_of
from backend.apps.workspaces.models import Role


class ExportViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Export]):
    """Files that outputs store, newest first."""

    queryset = Export.objects.none()
    filterset_class = ExportFilter
    search_fields: list[str] = []
    roles = {"retry": Role.OPERATOR, "abort": Role.OPERATOR, "close": Role.OPERATOR}

    def get_queryset(self) -> QuerySet[Export]:
        exports = selectors.exports_of(workspace_of(self.request))
        return exports.defer("preview") if self.action == "list" else exports

    def get_serializer_class(self) -> type[BaseSerializer[Export]]:
        return ExportSerializer if self.action == "list" else ExportDetailSerializer

    @extend_schema(responses=WaitingSerializer(many=True))
    @action(detail=False, pagination_class=None, filterset_class=None)
    def waiting(self, request: Request) -> Response:
        """Messages that are staged and in no file yet, by output and version."""
        return Response(WaitingSerializer(selectors.waiting_of(workspace_of(request)), many=True).data)

    @extend_schema(request=CloseSerializer, responses=ExportSerializer(many=True))
    @action(detail=False, methods=["post"], pagination_class=None, filterset_class=None)
    def close(self, request: Request) -> Response:
        """Make a file of everything that is staged for an output, without waiting for its limits."""
        serializer = CloseSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        pipeline = get_object_or_404(pipelines_of(workspace_of(request)), pk=serializer.validated_data["pipeline"])
        made = services.exports_close(
            pipeline=pipeline, output=serializer.validated_data["output"], actor=actor_of(request)
        )
        return Response(ExportSerializer(made, many=True).data)

    @extend_schema(request=RetryExportSerializer, responses=ExportDetailSerializer)
    @action(detail=True, methods=["post"])
    def retry(self, request: Request, pk: str) -> Response:
        """Write a failed or aborted file again, from the beginning and under its name."""
        serializer = RetryExportSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        export = services.export_retry(
            export=self.get_object(),
            actor=actor_of(request),
            use_current_version=serializer.validated_data["version"] == "current",
        )
        return Response(self.get_serializer(export).data)

    @extend_schema(request=None, responses=ExportDetailSerializer)
    @action(detail=True, methods=["post"])
    def abort(self, request: Request, pk: str) -> Response:
        """Stop a file and remove what was written of it. For some days it can be retried; then its staged messages are
        removed."""
        export = services.export_abort(export=self.get_object(), actor=actor_of(request))
        return Response(self.get_serializer(export).data)
