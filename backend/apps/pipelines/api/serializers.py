from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from backend.apps.pipelines.models import Pipeline, PipelineVersion, Provisioning, ProvisioningStep
from backend.apps.pipelines.selectors import is_posted, latest_config, pipeline_failure, shown_config
from backend.apps.pipelines.services import config_validate
from backend.apps.pipelines.statuses import statuses_of
from backend.apps.rest.etag import ETagField
from backend.apps.rest.strict import DocumentSerializer, StrictSerializer
from backend.apps.workspaces.api.base import workspace_of
from backend.domain.message import Message
from backend.domain.pipeline import PipelineConfig
from backend.domain.status import Action, State
from backend.domain.trial import text


@extend_schema_field(PipelineConfig)  # type: ignore[arg-type]
class ConfigField(serializers.DictField):
    """Passed through unchecked; the service validates it with the pipeline's model."""


class ProvisioningStepSerializer(serializers.ModelSerializer):
    class Meta:
        model = ProvisioningStep
        fields = ["kind", "place", "state", "attempts", "error", "field"]


class ProvisioningSerializer(serializers.ModelSerializer):
    """The resources to create in other systems before a version is published."""

    version = serializers.IntegerField(source="version.number")
    steps = ProvisioningStepSerializer(many=True)

    class Meta:
        model = Provisioning
        fields = ["state", "version", "cause", "steps", "created_at"]


class FindingSerializer(serializers.Serializer):
    """Something that is true of a pipeline."""

    state = serializers.ChoiceField(choices=[state.value for state in State])
    reason = serializers.CharField(help_text="A sentence that names the part.")
    place = serializers.CharField(
        allow_blank=True, help_text="The output, external call or stage that it is about; empty for others."
    )
    error = serializers.CharField(
        allow_blank=True, help_text="The error behind it, as it was reported; empty when there is none."
    )
    since = serializers.DateTimeField(allow_null=True)
    until = serializers.DateTimeField(allow_null=True, help_text="When it changes by itself, or is tried again.")
    action = serializers.ChoiceField(
        choices=[action.value for action in Action],
        allow_null=True,
        help_text="What helps; null when nothing does.",
    )


class StatusSerializer(FindingSerializer):
    """How a pipeline is: the worst that is true of it, and what else is."""

    more = FindingSerializer(many=True, help_text="What else is true of it, the worst first.")


class PipelineListSerializer(serializers.ListSerializer):
    """Asks once for the statuses of all."""

    def to_representation(self, data: Any) -> list[Any]:
        pipelines = list(data)
        _add_statuses(pipelines)
        return super().to_representation(pipelines)


def _add_statuses(pipelines: list[Any]) -> None:
    statuses = statuses_of(Pipeline.objects.filter(pk__in=[pipeline.pk for pipeline in pipelines]))
    for pipeline in pipelines:
        pipeline.status = statuses.get(pipeline.pk)


class PipelineSerializer(DocumentSerializer):
    config = ConfigField(help_text="The newest version's configuration.")
    version = serializers.IntegerField(source="latest_number", read_only=True, help_text="Newest version.")
    published_version = serializers.IntegerField(
        source="published.number", read_only=True, default=None, allow_null=True, help_text="Published version."
    )

    provisioning = serializers.SerializerMethodField(
        help_text="The version that waits for other systems, or could not be published."
    )
    warnings = serializers.ListField(
        child=serializers.CharField(),
        read_only=True,
        help_text="What endangers what was made for it in other systems, or endangers them.",
    )
    failure = serializers.SerializerMethodField(help_text="Why the published version cannot run; empty when it can.")
    status = StatusSerializer(read_only=True)
    etag = ETagField()
    ingest_url = serializers.SerializerMethodField(
        help_text="The address to which messages are posted, if its input takes them there."
    )

    class Meta:
        model = Pipeline
        list_serializer_class = PipelineListSerializer
        fields = [
            "id",
            "name",
            "status",
            "config",
            "version",
            "published_version",
            "paused",
            "failure",
            "provisioning",
            "warnings",
            "ingest_url",
            "created_at",
            "updated_at",
            "etag",
        ]
        read_only_fields = ["id", "paused", "created_at", "updated_at"]

    @extend_schema_field(ProvisioningSerializer(allow_null=True))  # type: ignore[misc]
    def get_provisioning(self, pipeline: Pipeline) -> Any:
        newest = next(iter(pipeline.provisionings.all()), None)
        shown = newest is not None and newest.state != Provisioning.State.ACTIVE
        return ProvisioningSerializer(newest).data if shown else None

    def get_failure(self, pipeline: Pipeline) -> str:
        return pipeline_failure(pipeline)

    def get_ingest_url(self, pipeline: Pipeline) -> str | None:
        if not is_posted(pipeline.config):  # type: ignore[attr-defined]
            return None
        return f"{settings.CONSOLE.ingest_url}/v1/pipelines/{pipeline.pk}/messages"

    def check_document(self, data: Mapping[str, Any]) -> None:
        if isinstance(config := data.get("config"), dict):
            config_validate(workspace=workspace_of(self.context["request"]), config=config)

    def to_representation(self, instance: Pipeline) -> dict[str, Any]:
        instance.config = latest_config(instance)  # type: ignore[attr-defined]
        if not hasattr(instance, "status"):
            _add_statuses([instance])
        return super().to_representation(instance)


class VersionSerializer(serializers.ModelSerializer):
    author = serializers.CharField(source="author.username")

    class Meta:
        model = PipelineVersion
        fields = ["number", "author", "created_at", "note"]


class WholeVersionSerializer(VersionSerializer):
    config = serializers.SerializerMethodField()

    class Meta(VersionSerializer.Meta):
        fields = [*VersionSerializer.Meta.fields, "config"]

    @extend_schema_field(ConfigField)
    def get_config(self, version: PipelineVersion) -> Any:
        return shown_config(version.config, version.schema_version, version.option_versions)


class PublishSerializer(StrictSerializer):
    note = serializers.CharField(
        required=False, allow_blank=True, default="", max_length=500, help_text="What the version changes, and why."
    )


class ReplayRequestSerializer(StrictSerializer):
    config = ConfigField(required=False, help_text="An unsaved configuration; the newest version if not set.")
    call_apis = serializers.BooleanField(
        default=False, help_text="Really call the external APIs of the steps, which are skipped otherwise."
    )


class DryRunRequestSerializer(ReplayRequestSerializer):
    body = serializers.CharField(
        trim_whitespace=False,
        allow_blank=True,
        max_length=2 * 1024 * 1024,
        help_text="The message's payload of up to 1 MiB.",
    )
    is_base64 = serializers.BooleanField(default=False, help_text="Whether the payload is in base64, as no text.")
    content_type = serializers.CharField(
        default="application/json", help_text="With which the message is sent; of NDJSON, one line."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """The body becomes bytes."""
        try:
            body = b64decode(attrs["body"], validate=True) if attrs["is_base64"] else attrs["body"].encode()
        except ValueError:
            raise serializers.ValidationError({"body": "This is not base64."}) from None
        return attrs | {"body": body}


class DryRunStepSerializer(serializers.Serializer):
    name = serializers.CharField()
    before = serializers.ListField(child=serializers.CharField(), help_text="Documents as JSON text.")
    after = serializers.ListField(child=serializers.CharField(), help_text="None when the step rejected them.")
    passed_over = serializers.BooleanField(help_text="The step calls an external API and was skipped.")


class DryRunCallSerializer(serializers.Serializer):
    name = serializers.CharField(help_text="The step's name.")
    request = serializers.CharField(help_text="The request, without the API's address and credentials.")
    answer = serializers.CharField(help_text="The response as JSON text; empty when there was none.")
    error = serializers.CharField()


class DryRunBodySerializer(serializers.Serializer):
    body = serializers.CharField(help_text="Text, or base64 when it is no text; Avro that is handed over as JSON.")
    is_base64 = serializers.BooleanField()


class DryRunResultSerializer(DryRunBodySerializer):
    content_type = serializers.CharField()
    index = serializers.CharField(help_text="Fields that other pipelines may filter it by, as JSON; empty for none.")
    taken_by = serializers.ListField(
        child=serializers.CharField(), help_text="Names of the published pipelines whose filters take it."
    )


class DryRunSentSerializer(DryRunBodySerializer):
    place = serializers.CharField(
        help_text="Where within the target, if the message decides that: a topic and a key, an id. Otherwise empty."
    )
    deletes = serializers.BooleanField(help_text="Whether it removes what is there.")


class DryRunOutputSerializer(serializers.Serializer):
    name = serializers.CharField()
    target = serializers.CharField(help_text="Where it would be delivered.")
    error = serializers.CharField(help_text="Why a message could not be delivered there.")
    sent = DryRunSentSerializer(many=True, help_text="What the receiver gets of each message.")


class DryRunSerializer(serializers.Serializer):
    topics = serializers.ListField(child=serializers.CharField(), help_text="Topics that the message would traverse.")
    steps = DryRunStepSerializer(many=True)
    error = serializers.CharField(help_text="Why a step rejected the message, which would become a dead letter.")
    results = DryRunResultSerializer(many=True, help_text="Messages that the steps hand on.")
    calls = DryRunCallSerializer(many=True, help_text="Calls to external APIs.")
    outputs = DryRunOutputSerializer(many=True)


class DifferenceSerializer(serializers.Serializer):
    message = serializers.IntegerField(help_text="Number of the message, from 1.")
    path = serializers.CharField(help_text="Path of the field; empty for the whole message.")
    change = serializers.ChoiceField(["added", "changed", "lost"])
    before = serializers.CharField(help_text="What was delivered, as JSON; empty for nothing.")
    after = serializers.CharField(help_text="What would be delivered, as JSON; empty for nothing.")


class ReplaySerializer(serializers.Serializer):
    outcome = DryRunSerializer()
    delivered = DryRunBodySerializer(many=True, help_text="What was handed to the outputs, as far as Kafka retains it.")
    differences = DifferenceSerializer(many=True)


class ExampleCheckSerializer(serializers.Serializer):
    name = serializers.CharField()
    failure = serializers.CharField(help_text="How the transforms fail the example; empty when they pass.")


class CheckExamplesRequestSerializer(StrictSerializer):
    config = ConfigField(required=False, help_text="An unsaved configuration; the newest version if not set.")


class SendMessageSerializer(StrictSerializer):
    body = serializers.CharField(
        trim_whitespace=False, max_length=1024 * 1024, help_text="The message's payload, a JSON document."
    )


class SentMessageSerializer(serializers.Serializer):
    message_id = serializers.CharField(help_text="By which its way can be followed.")


class MessageFieldSerializer(serializers.Serializer):
    path = serializers.CharField()
    type = serializers.CharField(help_text="null, boolean, number, string, object or list.")
    example = serializers.CharField(help_text="One of its values as JSON, shortened.")


class CapturedMessageSerializer(serializers.Serializer):
    id = serializers.UUIDField()
    received_at = serializers.DateTimeField()
    version = serializers.IntegerField()
    content_type = serializers.CharField()
    body = serializers.SerializerMethodField(help_text="As text, or in base64 when it is no text.")
    is_base64 = serializers.SerializerMethodField()

    def get_body(self, message: Message) -> str:
        return text(message.body)[0]

    def get_is_base64(self, message: Message) -> bool:
        return text(message.body)[1]
