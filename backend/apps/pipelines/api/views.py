from dataclasses import asdict
from typing import Any

from confluent_kafka import KafkaException
from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.decorators import action
from rest_framework.exceptions import APIException, NotFound, PermissionDenied
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from backend.apps.pipelines import services
from backend.apps.pipelines.api.serializers import (
    CapturedMessageSerializer,
    CheckExamplesRequestSerializer,
    DryRunRequestSerializer,
    DryRunSerializer,
    ExampleCheckSerializer,
    MessageFieldSerializer,
    PipelineSerializer,
    PublishSerializer,
    ReplayRequestSerializer,
    ReplaySerializer,
    SendMessageSerializer,
    SentMessageSerializer,
    VersionSerializer,
    WholeVersionSerializer,
)
from backend.apps.pipelines.captured import captured_messages
from backend.apps.pipelines.dry_run import dry_run, replay
from backend.apps.pipelines.models import Pipeline
from backend.apps.pipelines.selectors import latest_config, pipelines_of, version_changes
from backend.apps.pipelines.sending import message_send
from backend.apps.rest.etag import ETagViewSet
from backend.apps.rest.pagination import ByNewest, CountedByNewest
from backend.apps.rest.parameters import query_number
from backend.apps.rest.serializers import ChangeSerializer
from backend.apps.workspaces.api.base import actor_of, role_of, workspace_of
from backend.apps.workspaces.models import Role
from backend.domain.examples import check_examples
from backend.domain.message import Message
from backend.domain.model import json_schema
from backend.domain.numbers import small_number
from backend.domain.pipeline import PipelineConfig
from backend.domain.suggestions import fields_of

_MOST_CAPTURED = 100
_NO_LIST: dict[str, Any] = {"pagination_class": None, "filterset_fields": None, "search_fields": []}
_MESSAGE_ID = OpenApiParameter("message_id", str, OpenApiParameter.PATH)
_NUMBER = OpenApiParameter("number", int, OpenApiParameter.PATH)
_VERSION = "versions/(?P<number>[0-9]{1,9})"


class ByNumber(ByNewest):
    ordering = "-number"


class UnavailableError(APIException):
    status_code = 503


class PipelineViewSet(ETagViewSet[Pipeline]):
    """Pipelines of the workspace. Saving creates a version; publishing makes it the active one."""

    serializer_class = PipelineSerializer
    queryset = Pipeline.objects.none()
    pagination_class = CountedByNewest
    filterset_fields = ["paused"]
    search_fields = ["name"]
    http_method_names = ["get", "post", "put", "delete"]
    roles = {
        "pause": Role.OPERATOR,
        "resume": Role.OPERATOR,
        "dry_run": Role.VIEWER,
        "replay": Role.VIEWER,
        "check_examples": Role.VIEWER,
    }

    def get_queryset(self) -> QuerySet[Pipeline]:
        return pipelines_of(workspace_of(self.request))

    def perform_create(self, serializer: BaseSerializer[Pipeline]) -> None:
        created = services.pipeline_create(
            workspace=workspace_of(self.request), actor=actor_of(self.request), **serializer.validated_data
        )
        serializer.instance = self.get_queryset().get(pk=created.pk)

    def perform_update(self, serializer: BaseSerializer[Pipeline]) -> None:
        assert serializer.instance is not None
        data: dict[str, Any] = serializer.validated_data
        services.pipeline_update(pipeline=serializer.instance, actor=actor_of(self.request), **data)
        serializer.instance = self.get_queryset().get(pk=serializer.instance.pk)

    def perform_destroy(self, instance: Pipeline) -> None:
        services.pipeline_delete(pipeline=instance, actor=actor_of(self.request))

    @extend_schema(request=PublishSerializer, responses=PipelineSerializer)
    @action(detail=True, methods=["post"])
    def publish(self, request: Request, pk: str) -> Response:
        """Publish the newest version."""
        serializer = PublishSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        pipeline = services.pipeline_publish(
            pipeline=self.get_object(), actor=actor_of(request), note=serializer.validated_data["note"]
        )
        return self._answer(pipeline)

    @extend_schema(request=None, responses=PipelineSerializer)
    @action(detail=True, methods=["post"])
    def pause(self, request: Request, pk: str) -> Response:
        """Reject new messages; deliver those already accepted."""
        return self._answer(services.pipeline_pause(pipeline=self.get_object(), actor=actor_of(request)))

    @extend_schema(request=None, responses=PipelineSerializer)
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, pk: str) -> Response:
        """Accept messages again."""
        return self._answer(services.pipeline_resume(pipeline=self.get_object(), actor=actor_of(request)))

    @extend_schema(responses=VersionSerializer(many=True))
    @action(detail=True, **_NO_LIST | {"pagination_class": ByNumber})
    def versions(self, request: Request, pk: str) -> Response:
        """The versions, newest first."""
        versions: Any = self.get_object().versions.select_related("author")
        return self.get_paginated_response(VersionSerializer(self.paginate_queryset(versions), many=True).data)

    @extend_schema(responses=WholeVersionSerializer, parameters=[_NUMBER])
    @action(detail=True, url_path=_VERSION, **_NO_LIST)
    def version(self, request: Request, pk: str, number: str) -> Response:
        """A version with its configuration."""
        versions = self.get_object().versions.select_related("author")
        return Response(WholeVersionSerializer(get_object_or_404(versions, number=int(number))).data)

    @extend_schema(request=None, responses=PipelineSerializer, parameters=[_NUMBER])
    @action(detail=True, methods=["post"], url_path=f"{_VERSION}/restore")
    def restore(self, request: Request, pk: str, number: str) -> Response:
        """Save an earlier version's configuration as the newest version."""
        pipeline = services.pipeline_restore(pipeline=self.get_object(), actor=actor_of(request), number=int(number))
        return self._answer(pipeline)

    @extend_schema(request=None, responses=PipelineSerializer, parameters=[_NUMBER])
    @action(detail=True, methods=["post"], url_path=f"{_VERSION}/roll-back")
    def roll_back(self, request: Request, pk: str, number: str) -> Response:
        """Publish an earlier version's configuration as the newest version."""
        pipeline = services.pipeline_roll_back(pipeline=self.get_object(), actor=actor_of(request), number=int(number))
        return self._answer(pipeline)

    @extend_schema(
        responses=ChangeSerializer(many=True),
        parameters=[
            _NUMBER,
            OpenApiParameter("since", int, description="Version to compare with; the previous one by default."),
        ],
    )
    @action(detail=True, url_path=f"{_VERSION}/changes", **_NO_LIST)
    def changes(self, request: Request, pk: str, number: str) -> Response:
        """What a version changed."""
        since = small_number(request.query_params.get("since", ""))
        return Response(version_changes(pipeline=self.get_object(), number=int(number), since=since))

    @extend_schema(request=DryRunRequestSerializer, responses=DryRunSerializer)
    @action(detail=True, methods=["post"], url_path="dry-run")
    def dry_run(self, request: Request, pk: str) -> Response:
        """Simulate the processing of a message, step by step. Nothing is delivered, stored or counted."""
        serializer = DryRunRequestSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        _check_may_call(request, serializer.validated_data)
        pipeline, data = self.get_object(), serializer.validated_data
        result = dry_run(
            pipeline=pipeline,
            config=data.get("config") or latest_config(pipeline),
            body=data["body"],
            content_type=data["content_type"],
            call_apis=data["call_apis"],
        )
        return Response(DryRunSerializer(result).data)

    @extend_schema(request=ReplayRequestSerializer, responses=ReplaySerializer, parameters=[_MESSAGE_ID])
    @action(detail=True, methods=["post"], url_path="messages/(?P<message_id>[0-9a-f-]+)/replay")
    def replay(self, request: Request, pk: str, message_id: str) -> Response:
        """Run a received message through a configuration, and compare the result with what was delivered of it. Nothing
        is delivered, stored or counted."""
        serializer = ReplayRequestSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        _check_may_call(request, serializer.validated_data)
        pipeline, data = self.get_object(), serializer.validated_data
        try:
            result = replay(
                pipeline=pipeline,
                message_id=message_id,
                config=data.get("config") or latest_config(pipeline),
                call_apis=data["call_apis"],
            )
        except KafkaException as error:
            raise UnavailableError(f"Kafka is not available: {error.args[0].str()}.") from None
        if result is None:
            raise NotFound("Kafka no longer retains this message.")
        return Response(ReplaySerializer(result).data)

    @extend_schema(request=SendMessageSerializer, responses={202: SentMessageSerializer})
    @action(detail=True, methods=["post"], url_path="send-message")
    def send_message(self, request: Request, pk: str) -> Response:
        """Send one message through the published version; it is delivered and counted like any other."""
        serializer = SendMessageSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        try:
            message_id = message_send(
                pipeline=self.get_object(), actor=actor_of(request), body=serializer.validated_data["body"]
            )
        except KafkaException as error:
            raise UnavailableError(f"Kafka did not store the message: {error.args[0].str()}.") from None
        return Response({"message_id": message_id}, status=202)

    @extend_schema(request=CheckExamplesRequestSerializer, responses=ExampleCheckSerializer(many=True))
    @action(detail=True, methods=["post"], url_path="check-examples", **_NO_LIST)
    def check_examples(self, request: Request, pk: str) -> Response:
        """Check the transforms against the examples, as is done before a version is published."""
        serializer = CheckExamplesRequestSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        config_data = serializer.validated_data.get("config") or latest_config(self.get_object())
        config = services.config_validate(workspace=workspace_of(request), config=config_data)
        failures = check_examples(config.transforms, config.examples)
        checked = zip(config.examples, failures, strict=True)
        return Response([{"name": example.name, "failure": failure} for example, failure in checked])

    @extend_schema(responses=MessageFieldSerializer(many=True))
    @action(detail=True, url_path="fields", **_NO_LIST)
    def message_fields(self, request: Request, pk: str) -> Response:
        """The fields of the newest received messages."""
        bodies = [message.body for message in self._captured(_MOST_CAPTURED)]
        return Response([asdict(field) for field in fields_of(bodies)])

    @extend_schema(
        responses=CapturedMessageSerializer(many=True),
        parameters=[OpenApiParameter("limit", int, description="At most 100; 10 by default.")],
    )
    @action(detail=True, **_NO_LIST)
    def messages(self, request: Request, pk: str) -> Response:
        """The newest received messages that Kafka still retains, newest first."""
        limit = query_number(request, "limit", default=10, most=_MOST_CAPTURED)
        return Response(CapturedMessageSerializer(self._captured(limit), many=True).data)

    @extend_schema(responses=OpenApiTypes.OBJECT)
    @action(detail=False, url_path="schema", **_NO_LIST)
    def config_schema(self, request: Request) -> Response:
        """The JSON Schema of a pipeline's configuration, from which forms are generated."""
        return Response(json_schema(PipelineConfig))

    def _captured(self, limit: int) -> list[Message]:
        try:
            return captured_messages(pipeline=self.get_object(), limit=limit)
        except KafkaException as error:
            raise UnavailableError(f"Kafka is not available: {error.args[0].str()}.") from None

    def _answer(self, pipeline: Pipeline) -> Response:
        return Response(self.get_serializer(self.get_queryset().get(pk=pipeline.pk)).data)


def _check_may_call(request: Request, data: dict[str, Any]) -> None:
    """Raises PermissionDenied."""
    if data["call_apis"] and not role_of(request).includes(Role.EDITOR):
        raise PermissionDenied("Calling external APIs requires the role editor.")
