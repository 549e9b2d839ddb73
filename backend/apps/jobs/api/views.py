from typing import Any

from confluent_kafka import KafkaException
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import mixins, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from backend.apps.jobs import services
from backend.apps.jobs.api.serializers import JobSerializer, LogSerializer, ResourcesSerializer
from backend.apps.jobs.lag import stage_lags
from backend.apps.jobs.models import SparkJob
from backend.apps.jobs.selectors import job_log
from backend.apps.pipelines.selectors import stages_needed
from backend.apps.rest.parameters import query_number
from backend.apps.workspaces.api.base import actor_of
from backend.apps.workspaces.permissions import InstallationPermission

_MOST_LINES = 1000


class JobViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[SparkJob]):
    """Spark applications of the installation. Only its administrators may change them and read their logs."""

    queryset = SparkJob.objects.order_by("name")
    serializer_class = JobSerializer
    pagination_class = None
    filter_backends = []
    lookup_field = "name"

    def get_serializer_context(self) -> dict[str, Any]:
        context = dict(super().get_serializer_context())
        if getattr(self, "swagger_fake_view", False):
            return context  # generating the OpenAPI document needs no Kafka
        try:
            lags = stage_lags()
        except KafkaException:
            lags = {}  # Kafka is unavailable, which the page shows elsewhere
        return {**context, "lags": lags, "pipelines": stages_needed()}

    @extend_schema(request=ResourcesSerializer, responses={202: JobSerializer})
    @action(detail=True, methods=["patch"], permission_classes=[InstallationPermission])
    def resources(self, request: Request, name: str) -> Response:
        """Change what the application is to have; one that runs drains, and is started again within seconds."""
        job = self.get_object()
        changed = ResourcesSerializer(job, data=request.data, partial=True)
        changed.is_valid(raise_exception=True)
        services.job_change(job=job, actor=actor_of(request), resources=dict(changed.validated_data))
        return Response(self.get_serializer(self.get_object()).data, status=202)

    @extend_schema(request=None, responses={202: JobSerializer})
    @action(detail=True, methods=["post"], permission_classes=[InstallationPermission])
    def start(self, request: Request, name: str) -> Response:
        """Start the application; it starts within seconds."""
        services.job_start(job=self.get_object(), actor=actor_of(request))
        return Response(self.get_serializer(self.get_object()).data, status=202)

    @extend_schema(request=None, responses={202: JobSerializer})
    @action(detail=True, methods=["post"], permission_classes=[InstallationPermission])
    def stop(self, request: Request, name: str) -> Response:
        """Stop the application; it drains within seconds."""
        services.job_stop(job=self.get_object(), actor=actor_of(request))
        return Response(self.get_serializer(self.get_object()).data, status=202)

    @extend_schema(responses=LogSerializer, parameters=[OpenApiParameter("lines", int, description="At most 1000.")])
    @action(detail=True, permission_classes=[InstallationPermission])
    def log(self, request: Request, name: str) -> Response:
        """The last lines of the application's log."""
        lines = query_number(request, "lines", default=200, most=_MOST_LINES)
        return Response({"lines": job_log(self.get_object(), lines)})
