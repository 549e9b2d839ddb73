from django.db.models import QuerySet
from rest_framework import mixins, viewsets

from backend.apps.change_streams import selectors
from backend.apps.change_streams.api.serializers import ChangeStreamSerializer
from backend.apps.connectors.models import Connector
from backend.apps.workspaces.api.base import workspace_of


class ChangeStreamViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Connector]):
    """Change streams for Materialize. They are made as connectors of the type ``materialize_cdc``."""

    queryset = Connector.objects.none()
    serializer_class = ChangeStreamSerializer
    search_fields = ["name"]

    def get_queryset(self) -> QuerySet[Connector]:
        return selectors.change_streams_of(workspace_of(self.request)).select_related("workspace")
