from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer
from rest_framework.views import APIView

from backend.apps.connectors.api.serializers import (
    ConnectionTestSerializer,
    ConnectorSerializer,
    ConnectorTypeSerializer,
    ConnectorUserSerializer,
    SavedConnectionTestSerializer,
    TestResultSerializer,
)
from backend.apps.connectors.dependents import dependents_of
from backend.apps.connectors.models import Connector
from backend.apps.connectors.selectors import connector_types, connectors_of
from backend.apps.connectors.services import connector_check, connector_create, connector_delete, connector_update
from backend.apps.rest.etag import ETagViewSet
from backend.apps.rest.pagination import CountedByNewest
from backend.apps.workspaces.api.base import actor_of, workspace_of
from backend.domain.errors import ConfigError


class ConnectorTypesView(APIView):
    """The installed connector types."""

    @extend_schema(responses=ConnectorTypeSerializer(many=True))
    def get(self, request: Request) -> Response:
        return Response(connector_types())


class ConnectorViewSet(ETagViewSet[Connector]):
    """Connectors of the workspace."""

    serializer_class = ConnectorSerializer
    queryset = Connector.objects.none()
    pagination_class = CountedByNewest
    filterset_fields = ["type"]
    search_fields = ["name"]
    http_method_names = ["get", "post", "put", "delete"]

    def get_queryset(self) -> QuerySet[Connector]:
        return connectors_of(workspace_of(self.request))

    def perform_create(self, serializer: BaseSerializer[Connector]) -> None:
        serializer.instance = connector_create(
            workspace=workspace_of(self.request), actor=actor_of(self.request), **serializer.validated_data
        )

    def perform_update(self, serializer: BaseSerializer[Connector]) -> None:
        assert serializer.instance is not None
        data: dict[str, Any] = serializer.validated_data
        if data["type"] != serializer.instance.type:
            raise ConfigError({"type": ["A connector keeps its type: create another one for another system."]})
        serializer.instance = connector_update(
            connector=serializer.instance,
            actor=actor_of(self.request),
            name=data["name"],
            connection=data["connection"],
        )

    def perform_destroy(self, instance: Connector) -> None:
        connector_delete(connector=instance, actor=actor_of(self.request))

    @extend_schema(responses=ConnectorUserSerializer(many=True))
    @action(detail=True, url_path="used-by", pagination_class=None, filter_backends=[])
    def used_by(self, request: Request, pk: str) -> Response:
        """What uses the connector."""
        return Response(ConnectorUserSerializer(dependents_of(self.get_object()), many=True).data)

    @extend_schema(request=SavedConnectionTestSerializer, responses=TestResultSerializer)
    @action(detail=True, methods=["post"])
    def test(self, request: Request, pk: str) -> Response:
        """Test the saved connection, or a changed one before it is saved, by really connecting."""
        saved = self.get_object()
        serializer = SavedConnectionTestSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        connection = serializer.validated_data.get("connection", saved.connection)
        detail = connector_check(workspace=saved.workspace, type=saved.type, connection=connection, stored=saved)
        return Response(TestResultSerializer({"detail": detail}).data)

    @extend_schema(
        operation_id="connectors_test_unsaved", request=ConnectionTestSerializer, responses=TestResultSerializer
    )
    @action(detail=False, methods=["post"], url_path="test")
    def test_unsaved(self, request: Request) -> Response:
        """Test a connection before it is saved, by really connecting."""
        serializer = ConnectionTestSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        detail = connector_check(workspace=workspace_of(request), **serializer.validated_data)
        return Response(TestResultSerializer({"detail": detail}).data)
