from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import mixins, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer
from rest_framework.views import APIView

from backend.apps.jobs.selectors import stage_troubles
from backend.apps.monitoring import selectors, services
from backend.apps.monitoring.api.serializers import (
    ActivitySerializer,
    AlertRuleSerializer,
    AlertSerializer,
    ConditionSerializer,
    ConnectorActivitySerializer,
    CountsSerializer,
    CountsStepSerializer,
    PipelineErrorSerializer,
)
from backend.apps.monitoring.conditions import conditions_of
from backend.apps.monitoring.models import Alert, AlertRule
from backend.apps.pipelines.models import Pipeline
from backend.apps.pipelines.selectors import pipelines_of, published_outputs
from backend.apps.rest.pagination import CountedByNewest
from backend.apps.rest.parameters import query_ids, query_number
from backend.apps.workspaces.api.base import actor_of, workspace_of

_MOST_MINUTES = 60
_MOST_HOURS = 720
_MOST_PIPELINES = 100


class AlertRuleViewSet(viewsets.ModelViewSet[AlertRule]):
    """Rules that raise alerts and send notifications."""

    queryset = AlertRule.objects.none()
    serializer_class = AlertRuleSerializer
    pagination_class = CountedByNewest
    filterset_fields = ["kind", "enabled"]
    search_fields = ["name"]
    http_method_names = ["get", "post", "put", "delete"]

    def get_queryset(self) -> QuerySet[AlertRule]:
        return AlertRule.objects.filter(workspace=workspace_of(self.request))

    def perform_create(self, serializer: BaseSerializer[AlertRule]) -> None:
        serializer.instance = services.alert_rule_create(
            workspace=workspace_of(self.request), actor=actor_of(self.request), **serializer.validated_data
        )

    def perform_update(self, serializer: BaseSerializer[AlertRule]) -> None:
        assert serializer.instance is not None
        data: dict[str, Any] = serializer.validated_data
        services.alert_rule_update(rule=serializer.instance, actor=actor_of(self.request), **data)

    def perform_destroy(self, instance: AlertRule) -> None:
        services.alert_rule_delete(rule=instance, actor=actor_of(self.request))


class AlertViewSet(mixins.ListModelMixin, viewsets.GenericViewSet[Alert]):
    """Alerts, open and resolved, newest first."""

    queryset = Alert.objects.none()
    serializer_class = AlertSerializer
    filterset_fields = {"rule": ["exact"], "ended_at": ["isnull"]}
    search_fields: list[str] = []

    def get_queryset(self) -> QuerySet[Alert]:
        return Alert.objects.filter(rule__workspace=workspace_of(self.request)).select_related("rule")


class ConditionsView(APIView):
    """How the pipelines of the workspace are."""

    @extend_schema(responses=ConditionSerializer(many=True))
    def get(self, request: Request) -> Response:
        """The status, open dead letters and circuit breakers that are not closed of each pipeline; those that are idle
        and of which there is nothing to say are left out."""
        conditions = conditions_of(workspace_of(request), stage_troubles())
        return Response(ConditionSerializer(conditions, many=True).data)


class ThroughputView(APIView):
    """What happened to the messages of all pipelines of the workspace."""

    @extend_schema(
        responses=CountsStepSerializer(many=True),
        parameters=[OpenApiParameter("hours", int, description="How far back, at most 720; 24 by default.")],
    )
    def get(self, request: Request) -> Response:
        """Counts of the last hours or days, in steps of one or more minutes, oldest first."""
        hours = query_number(request, "hours", default=24, most=_MOST_HOURS)
        pipelines = Pipeline.objects.filter(workspace=workspace_of(request))
        return Response(selectors.counts_history(pipelines.values_list("pk", flat=True), hours))


class ActivityView(APIView):
    """How several pipelines did."""

    @extend_schema(
        responses=ActivitySerializer(many=True),
        parameters=[OpenApiParameter("pipelines", required=True, description="Ids, separated by commas.")],
    )
    def get(self, request: Request) -> Response:
        """The last 24 hours of at most 100 pipelines, by hour; those that do not exist are left out."""
        ids = query_ids(request, "pipelines", most=_MOST_PIPELINES)
        shown = Pipeline.objects.filter(workspace=workspace_of(request), pk__in=ids)
        published = published_outputs(shown)
        outputs = {str(pk): list(published.get(str(pk), ())) for pk in shown.values_list("pk", flat=True)}
        return Response(ActivitySerializer(selectors.activity_of(outputs), many=True).data)


class ConnectorActivityView(APIView):
    """How the connectors of the workspace are used."""

    @extend_schema(responses=ConnectorActivitySerializer(many=True))
    def get(self, request: Request) -> Response:
        """How many pipelines use each connector, and the last error of its deliveries; those that none uses are left
        out."""
        activity = selectors.connector_activity(workspace_of(request))
        return Response(ConnectorActivitySerializer(activity, many=True).data)


class PipelineActivityViewSet(viewsets.GenericViewSet[Pipeline]):
    """What happened to the messages of a pipeline."""

    queryset = Pipeline.objects.none()
    pagination_class = None
    filter_backends = []

    def get_queryset(self) -> QuerySet[Pipeline]:
        return pipelines_of(workspace_of(self.request))

    @extend_schema(
        responses=CountsSerializer,
        parameters=[OpenApiParameter("minutes", int, description="How far back by_second goes, at most 60.")],
    )
    @action(detail=True)
    def metrics(self, request: Request, pk: str) -> Response:
        """Live counts, all of one moment."""
        minutes = query_number(request, "minutes", default=5, most=_MOST_MINUTES)
        return Response(selectors.counts_now(str(self.get_object().pk), minutes))

    @extend_schema(
        responses=CountsStepSerializer(many=True),
        parameters=[OpenApiParameter("hours", int, description="How far back, at most 720; 24 by default.")],
    )
    @action(detail=True)
    def history(self, request: Request, pk: str) -> Response:
        """Counts of the last hours or days, in steps of one or more minutes, oldest first."""
        hours = query_number(request, "hours", default=24, most=_MOST_HOURS)
        return Response(selectors.counts_history([self.get_object().pk], hours))

    @extend_schema(responses=PipelineErrorSerializer(many=True))
    @action(detail=True)
    def errors(self, request: Request, pk: str) -> Response:
        """The latest errors, newest first."""
        return Response(selectors.latest_errors(str(self.get_object().pk)))
