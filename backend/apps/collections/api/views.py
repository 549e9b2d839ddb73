from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, status, viewsets
from rest_framework.decorators import action
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from backend.apps.collections import selectors, services
from backend.apps.collections.api.serializers import (
    CollectionDetailSerializer,
    CollectionSerializer,
    DocumentPageSerializer,
    DocumentQuerySerializer,
)
from backend.apps.connectors.models import Connector
from backend.apps.workspaces.api.base import actor_of, workspace_of
from backend.apps.workspaces.models import Role
from backend.collections.errors import CollectionError


class _UnavailableError(APIException):
    status_code = status.HTTP_503_SERVICE_UNAVAILABLE


class CollectionViewSet(
    mixins.ListModelMixin, mixins.RetrieveModelMixin, mixins.DestroyModelMixin, viewsets.GenericViewSet[Connector]
):
    """Collections: logs of documents that outputs keep. They are made as connectors of the type ``collection``."""

    queryset = Connector.objects.none()
    search_fields = ["name"]
    roles = {"reset": Role.EDITOR}

    def get_queryset(self) -> QuerySet[Connector]:
        return selectors.collections_of(workspace_of(self.request))

    def get_serializer_class(self) -> type[BaseSerializer[Connector]]:
        return CollectionSerializer if self.action == "list" else CollectionDetailSerializer

    def perform_destroy(self, instance: Connector) -> None:
        """With all its documents. Refused while a pipeline uses it."""
        services.collection_delete(collection=instance, actor=actor_of(self.request))

    @extend_schema(parameters=[DocumentQuerySerializer], responses=DocumentPageSerializer)
    @action(detail=True, pagination_class=None)
    def documents(self, request: Request, pk: str) -> Response:
        """Documents of one partition, newest first, all or those with a key."""
        collection = self.get_object()
        query = DocumentQuerySerializer(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        parameters = {"partition": None, "key": None, "before": None} | query.validated_data
        try:
            page = selectors.documents_of(collection, **parameters)
        except CollectionError as error:
            raise _UnavailableError(str(error)) from None
        return Response(DocumentPageSerializer(page).data)

    @extend_schema(request=None, responses=CollectionDetailSerializer)
    @action(detail=True, methods=["post"])
    def reset(self, request: Request, pk: str) -> Response:
        """Remove all documents, so that the collection can be filled again. Offsets go on where they were, and the
        leader epoch is raised, by which readers notice."""
        collection = self.get_object()
        try:
            services.collection_reset(collection=collection, actor=actor_of(request))
        except CollectionError as error:
            raise _UnavailableError(str(error)) from None
        return Response(self.get_serializer(collection).data)
