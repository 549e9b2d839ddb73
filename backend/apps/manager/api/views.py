from dataclasses import asdict

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from backend.apps.manager.api.serializers import InputChangeSerializer, InputStateSerializer
from backend.apps.manager.selectors import input_change, input_state
from backend.apps.pipelines.models import Pipeline
from backend.apps.pipelines.selectors import pipelines_of
from backend.apps.workspaces.api.base import workspace_of


class PipelineInputViewSet(viewsets.GenericViewSet[Pipeline]):
    """The input of a pipeline."""

    queryset = Pipeline.objects.none()
    pagination_class = None
    filter_backends = []

    def get_queryset(self) -> QuerySet[Pipeline]:
        return pipelines_of(workspace_of(self.request))

    @extend_schema(responses=InputStateSerializer)
    @action(detail=True, url_path="input-state")
    def input_state(self, request: Request, pk: str) -> Response:
        """How far the input has been read, and why it cannot be read if that is so."""
        return Response(InputStateSerializer(asdict(input_state(self.get_object()))).data)

    @extend_schema(responses=InputChangeSerializer, parameters=[OpenApiParameter("number", int, OpenApiParameter.PATH)])
    @action(detail=True, url_path="versions/(?P<number>[0-9]{1,9})/input-change")
    def input_change(self, request: Request, pk: str, number: str) -> Response:
        """Whether reading of the input starts anew, or ends, when a version is published, and why."""
        return Response(InputChangeSerializer(input_change(pipeline=self.get_object(), number=int(number))).data)
