from django.db.models import QuerySet
from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, viewsets
from rest_framework.decorators import action
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer, ValidationError

from backend.apps.deliveries import selectors, services
from backend.apps.deliveries.api.filters import AttemptFilter, DeadLetterFilter
from backend.apps.deliveries.api.serializers import (
    AttemptSerializer,
    CountSerializer,
    DeadLetterDetailSerializer,
    DeadLetterGroupSerializer,
    DeadLetterSelectionSerializer,
    DeadLetterSerializer,
    DiscardSerializer,
    OutputEventSerializer,
    OutputSerializer,
    PreviewSerializer,
    RedriveSerializer,
    SetBreakerSerializer,
)
from backend.apps.deliveries.models import Attempt, DeadLetter, OutputEvent
from backend.apps.pipelines.models import Pipeline
from backend.apps.pipelines.selectors import pipelines_of
from backend.apps.workspaces.api.base import actor_of, workspace_of
from backend.apps.workspaces.models import Role


class DeadLetterViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[DeadLetter]):
    """Messages that could not be delivered."""

    queryset = DeadLetter.objects.none()
    filterset_class = DeadLetterFilter
    search_fields: list[str] = []
    roles = {"count": Role.VIEWER, "redrive": Role.OPERATOR, "discard": Role.OPERATOR}

    def get_queryset(self) -> QuerySet[DeadLetter]:
        letters = selectors.dead_letters_of(workspace_of(self.request))
        return letters.defer("body", "key", "headers") if self.action == "list" else letters

    def get_serializer_class(self) -> type[BaseSerializer[DeadLetter]]:
        return DeadLetterDetailSerializer if self.action == "retrieve" else DeadLetterSerializer

    @extend_schema(responses=DeadLetterGroupSerializer(many=True), filters=True)
    @action(detail=False, pagination_class=None)
    def summary(self, request: Request) -> Response:
        """Counts by pipeline, output and reason, with the oldest and the next redelivery."""
        groups = selectors.dead_letter_summary(self.filter_queryset(self.get_queryset()))
        return Response(DeadLetterGroupSerializer(groups, many=True).data)

    @extend_schema(request=DeadLetterSelectionSerializer, responses=PreviewSerializer)
    @action(detail=False, methods=["post"], filterset_class=None)
    def count(self, request: Request) -> Response:
        """Count the waiting dead letters of a selection before anything is done."""
        serializer = DeadLetterSelectionSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        waiting = self._selected(serializer.validated_data["filter"]).filter(state=DeadLetter.State.WAITING)
        groups = selectors.dead_letter_summary(waiting)
        preview = {
            "count": sum(group["count"] for group in groups),
            "outputs": len({(group["pipeline_id"], group["output"]) for group in groups}),
            "groups": groups,
        }
        return Response(PreviewSerializer(preview).data)

    @extend_schema(request=RedriveSerializer, responses=CountSerializer)
    @action(detail=False, methods=["post"], filterset_class=None)
    def redrive(self, request: Request) -> Response:
        """Redeliver the selected dead letters, as breakers and rate limits allow."""
        serializer = RedriveSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        count = services.dead_letters_redrive(
            letters=self._selected(serializer.validated_data["filter"]),
            workspace=workspace_of(request),
            actor=actor_of(request),
            filter=serializer.validated_data["filter"],
            use_current_version=serializer.validated_data["version"] == "current",
        )
        return Response({"count": count})

    @extend_schema(request=DiscardSerializer, responses=CountSerializer)
    @action(detail=False, methods=["post"], filterset_class=None)
    def discard(self, request: Request) -> Response:
        """Discard the selected dead letters."""
        serializer = DiscardSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        count = services.dead_letters_discard(
            letters=self._selected(serializer.validated_data["filter"]),
            workspace=workspace_of(request),
            actor=actor_of(request),
            filter=serializer.validated_data["filter"],
            reason=serializer.validated_data["reason"],
        )
        return Response({"count": count})

    def _selected(self, filters: dict[str, str]) -> QuerySet[DeadLetter]:
        if unknown := sorted(set(filters) - set(DeadLetterFilter.base_filters)):
            raise ValidationError({"filter": [f"Unknown filter: {', '.join(unknown)}."]})
        filterset = DeadLetterFilter(filters, queryset=selectors.dead_letters_of(workspace_of(self.request)))
        if not filterset.is_valid():
            raise ValidationError({"filter": filterset.errors})
        letters: QuerySet[DeadLetter] = filterset.qs
        return letters


class AttemptViewSet(mixins.ListModelMixin, viewsets.GenericViewSet[Attempt]):
    """Delivery attempts: all failures, and a sample of the successes."""

    queryset = Attempt.objects.none()
    serializer_class = AttemptSerializer
    filterset_class = AttemptFilter
    search_fields: list[str] = []

    def get_queryset(self) -> QuerySet[Attempt]:
        return selectors.attempts_of(workspace_of(self.request))


class OutputEventViewSet(mixins.ListModelMixin, viewsets.GenericViewSet[OutputEvent]):
    """State changes of circuit breakers, newest first."""

    queryset = OutputEvent.objects.none()
    serializer_class = OutputEventSerializer
    filterset_fields = ["pipeline_id", "output", "state"]
    search_fields: list[str] = []

    def get_queryset(self) -> QuerySet[OutputEvent]:
        return selectors.events_of(workspace_of(self.request))


class OutputViewSet(viewsets.GenericViewSet[Pipeline]):
    """The outputs of a pipeline and the state of their breakers."""

    queryset = Pipeline.objects.none()
    serializer_class = OutputSerializer
    pagination_class = None
    filter_backends = []
    roles = {"breaker": Role.OPERATOR}

    def _pipeline(self, pipeline: str) -> Pipeline:
        return get_object_or_404(pipelines_of(workspace_of(self.request)), pk=pipeline)

    @extend_schema(responses=OutputSerializer(many=True))
    def list(self, request: Request, pipeline: str) -> Response:
        """Each output with its breaker, rate limit and waiting dead letters."""
        return Response(OutputSerializer(selectors.outputs_of(self._pipeline(pipeline)), many=True).data)

    @extend_schema(request=SetBreakerSerializer, responses=OutputSerializer)
    @action(detail=True, methods=["post"])
    def breaker(self, request: Request, pipeline: str, name: str) -> Response:
        """Open or close the circuit breaker manually."""
        serializer = SetBreakerSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        owner = self._pipeline(pipeline)
        if name not in {output["name"] for output in selectors.output_configs(owner)}:
            raise Http404
        services.breaker_set(
            pipeline=owner,
            output=name,
            to_open=serializer.validated_data["open"],
            seconds=serializer.validated_data.get("seconds"),
            actor=actor_of(request),
        )
        shown = next(output for output in selectors.outputs_of(owner) if output["name"] == name)
        return Response(OutputSerializer(shown).data)
