from typing import Any

from django.conf import settings
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from backend.apps.audit.api.serializers import ChangeSerializer
from backend.apps.pipelines.models import Pipeline, PipelineVersion, Provisioning, ProvisioningStep
from backend.apps.workspaces.api.etag import ETagField
from backend.apps.workspaces.api.strict import StrictModelSerializer, StrictSerializer
from backend.domain.message import Message
from backend.domain.pipeline import PipelineConfig


@extend_schema_field(PipelineConfig)  # type: ignore[arg-type]
class ConfigField(serializers.DictField):
    """Taken as it is; the service validates it with the pipeline's model."""


class ProvisioningStepSerializer(serializers.ModelSerializer):
    class Meta:
        model = ProvisioningStep
        fields = ["kind", "state", "attempts", "error"]


class ProvisioningSerializer(serializers.ModelSerializer):
    """What has to be made in other systems before a version is in force."""

    version = serializers.IntegerField(source="version.number")
    steps = ProvisioningStepSerializer(many=True)

    class Meta:
        model = Provisioning
        fields = ["state", "version", "cause", "steps", "created_at"]


class PipelineSerializer(StrictModelSerializer):
    config = ConfigField(help_text="The newest version's configuration.")
    version = serializers.IntegerField(source="latest_number", read_only=True, help_text="Newest version.")
    published_version = serializers.IntegerField(
        source="published.number", read_only=True, default=None, allow_null=True, help_text="Version in force."
    )

    provisioning = serializers.SerializerMethodField(
        help_text="The version that waits for other systems, or could not be put in force."
    )
    etag = ETagField()
    ingest_url = serializers.SerializerMethodField(help_text="Where messages are posted.")

    class Meta:
        model = Pipeline
        fields = [
            "id",
            "name",
            "config",
            "version",
            "published_version",
            "paused",
            "failure",
            "provisioning",
            "ingest_url",
            "created_at",
            "updated_at",
            "etag",
        ]
        read_only_fields = ["id", "paused", "failure", "created_at", "updated_at"]

    @extend_schema_field(ProvisioningSerializer(allow_null=True))  # type: ignore[misc]
    def get_provisioning(self, pipeline: Pipeline) -> Any:
        newest = next(iter(pipeline.provisionings.all()), None)
        shown = newest is not None and newest.state != Provisioning.State.ACTIVE
        return ProvisioningSerializer(newest).data if shown else None

    def get_ingest_url(self, pipeline: Pipeline) -> str:
        return f"{settings.CONSOLE.ingest_url}/v1/pipelines/{pipeline.pk}/messages"

    def to_representation(self, instance: Pipeline) -> dict[str, Any]:
        instance.config = instance.latest_config  # type: ignore[attr-defined]
        return super().to_representation(instance)


class VersionSerializer(serializers.ModelSerializer):
    config = ConfigField()
    author = serializers.CharField(source="author.username")

    class Meta:
        model = PipelineVersion
        fields = ["number", "config", "author", "created_at"]


class CountsSerializer(serializers.Serializer):
    last_24_hours = serializers.DictField(child=serializers.IntegerField(), help_text="Counts by event.")
    by_second = serializers.DictField(
        child=serializers.DictField(child=serializers.IntegerField()),
        help_text="Counts by Unix time in seconds, then by event; only seconds in which something happened.",
    )


class DryRunRequestSerializer(StrictSerializer):
    body = serializers.CharField(
        trim_whitespace=False, allow_blank=True, max_length=1024 * 1024, help_text="The message's payload."
    )
    config = ConfigField(required=False, help_text="A configuration that is not saved yet; the newest version without.")
    call_apis = serializers.BooleanField(
        default=False, help_text="Really ask the external APIs of the steps; they are passed over without."
    )


class DryRunStepSerializer(serializers.Serializer):
    name = serializers.CharField()
    before = serializers.ListField(child=serializers.CharField(), help_text="Documents as JSON text.")
    after = serializers.ListField(child=serializers.CharField(), help_text="None when the step refused them.")
    passed_over = serializers.BooleanField(help_text="The step asks an external API, which was not done.")


class DryRunCallSerializer(serializers.Serializer):
    name = serializers.CharField(help_text="The step's name.")
    request = serializers.CharField(help_text="What was asked, without the API's address and credentials.")
    answer = serializers.CharField(help_text="As JSON text; empty when there was none.")
    error = serializers.CharField()


class DryRunOutputSerializer(serializers.Serializer):
    name = serializers.CharField()
    target = serializers.CharField(help_text="Where it would be delivered.")
    error = serializers.CharField()


class DryRunSerializer(serializers.Serializer):
    topics = serializers.ListField(child=serializers.CharField(), help_text="Topics that the message would pass.")
    steps = DryRunStepSerializer(many=True)
    error = serializers.CharField(help_text="Why a step refused the message; it would become a dead letter.")
    results = serializers.ListField(child=serializers.CharField(), help_text="Bodies that would be delivered.")
    calls = DryRunCallSerializer(many=True, help_text="What external APIs were asked.")
    outputs = DryRunOutputSerializer(many=True)


class ExampleCheckSerializer(serializers.Serializer):
    name = serializers.CharField()
    failure = serializers.CharField(help_text="How the transforms fail it; empty when they keep to it.")


class CheckExamplesRequestSerializer(StrictSerializer):
    config = ConfigField(required=False, help_text="A configuration that is not saved yet; the newest version without.")


class MessageFieldSerializer(serializers.Serializer):
    path = serializers.CharField()
    type = serializers.CharField(help_text="null, boolean, number, string, object or list.")
    example = serializers.CharField(help_text="One of its values, as JSON, shortened.")


class CapturedMessageSerializer(serializers.Serializer):
    id = serializers.UUIDField()
    received_at = serializers.DateTimeField()
    version = serializers.IntegerField()
    content_type = serializers.CharField()
    body = serializers.SerializerMethodField()

    def get_body(self, message: Message) -> str:
        return message.body.decode(errors="replace")


class ApplySerializer(StrictSerializer):
    yaml = serializers.CharField(
        trim_whitespace=False, max_length=10 * 1024 * 1024, help_text="Documents as the export gives them."
    )
    prune = serializers.BooleanField(default=False, help_text="Delete what no document names.")
    dry_run = serializers.BooleanField(default=True, help_text="Only say what would be done.")


class StepSerializer(serializers.Serializer):
    action = serializers.CharField(help_text="create, update, publish, pause, resume or delete.")
    kind = serializers.CharField(help_text="connector or pipeline.")
    name = serializers.CharField()
    changes = ChangeSerializer(many=True)


class CountsStepSerializer(serializers.Serializer):
    at = serializers.IntegerField(help_text="Unix time at which the step begins.")
    seconds = serializers.IntegerField(help_text="Length of the step.")
    counts = serializers.DictField(child=serializers.IntegerField(), help_text="Counts by event.")


class PipelineErrorSerializer(serializers.Serializer):
    at = serializers.DateTimeField()
    stage = serializers.CharField()
    reason = serializers.CharField()
    message = serializers.CharField()
    message_id = serializers.CharField()
