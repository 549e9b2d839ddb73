from typing import Any

from rest_framework import serializers

from backend.apps.connectors.models import Connector
from backend.apps.deliveries.api.serializers import BreakerSerializer
from backend.apps.monitoring.models import Alert, AlertRule
from backend.apps.monitoring.notifications import alert_output
from backend.apps.pipelines.api.serializers import StatusSerializer
from backend.apps.pipelines.models import Pipeline
from backend.apps.rest.strict import StrictModelSerializer
from backend.apps.workspaces.api.base import workspace_of
from backend.domain.connector import connectors
from backend.domain.model import json_schema


class AlertRuleSerializer(StrictModelSerializer):
    pipeline = serializers.PrimaryKeyRelatedField(queryset=Pipeline.objects.none(), allow_null=True, default=None)
    connector = serializers.PrimaryKeyRelatedField(queryset=Connector.objects.none(), allow_null=True, default=None)

    class Meta:
        model = AlertRule
        fields = ["id", "name", "kind", "threshold", "minutes", "pipeline", "connector", "email", "enabled"]

    def get_fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = super().get_fields()
        if not getattr(self.context.get("view"), "swagger_fake_view", False):
            workspace = workspace_of(self.context["request"])
            fields["pipeline"].queryset = Pipeline.objects.filter(workspace=workspace)
            fields["connector"].queryset = Connector.objects.filter(workspace=workspace)
        return fields

    def validate_connector(self, connector: Connector | None) -> Connector | None:
        if connector is not None and not _takes_alerts(connector):
            raise serializers.ValidationError(f"{connector.name} cannot take alerts; choose one that needs no options.")
        return connector


def _takes_alerts(connector: Connector) -> bool:
    capability = alert_output(connector).capability_of(connectors.get(connector.type))
    if capability is None or capability.handed_over:
        return False
    return not json_schema(capability.options_model).get("required")


class AlertSerializer(serializers.ModelSerializer):
    rule_name = serializers.CharField(source="rule.name")
    kind = serializers.CharField(source="rule.kind")

    class Meta:
        model = Alert
        fields = ["id", "rule", "rule_name", "kind", "subject", "message", "started_at", "ended_at", "notification"]
        read_only_fields = fields


class CountsSerializer(serializers.Serializer):
    since = serializers.IntegerField(help_text="Unix time from which on by_second counts.")
    last_24_hours = serializers.DictField(child=serializers.IntegerField(), help_text="Counts by event.")
    by_second = serializers.DictField(
        child=serializers.DictField(child=serializers.IntegerField()),
        help_text="Counts by Unix time in seconds, then by event; only seconds with events.",
    )


class CountsStepSerializer(serializers.Serializer):
    at = serializers.IntegerField(help_text="Unix time at which the step begins.")
    seconds = serializers.IntegerField(help_text="Length of the step.")
    counts = serializers.DictField(child=serializers.IntegerField(), help_text="Counts by event.")
    waiting = serializers.IntegerField(
        allow_null=True,
        help_text="Messages that waited at the last minute of the step for which that is known: those that came in "
        "during 24 hours and were neither dropped nor, by the output that lags most, delivered or given up. Null if "
        "it is known for none.",
    )


class PipelineErrorSerializer(serializers.Serializer):
    at = serializers.DateTimeField()
    stage = serializers.CharField()
    reason = serializers.CharField()
    message = serializers.CharField()
    message_id = serializers.CharField()


class ActivitySerializer(serializers.Serializer):
    """The last 24 hours of a pipeline."""

    pipeline = serializers.UUIDField()
    delivered = serializers.ListField(child=serializers.IntegerField(), help_text="By hour, the current one last.")
    failed = serializers.ListField(child=serializers.IntegerField(), help_text="Dead letters by hour.")
    backlog = serializers.IntegerField(
        allow_null=True,
        help_text="Messages that came in during these hours and were neither dropped nor, by the output that lags "
        "most, delivered or given up; null without published outputs.",
    )
    last_error = PipelineErrorSerializer(allow_null=True)


class ConnectorActivitySerializer(serializers.Serializer):
    """Who uses a connector, and how that goes."""

    connector = serializers.UUIDField()
    pipelines = serializers.IntegerField(help_text="How many pipelines use it in any version.")
    last_error = PipelineErrorSerializer(
        allow_null=True, help_text="The latest among the newest errors of the pipelines that deliver to it."
    )


class OutputBreakerSerializer(serializers.Serializer):
    output = serializers.CharField(help_text="The output, or the external call, that it protects.")
    breaker = BreakerSerializer()


class ReasonCountSerializer(serializers.Serializer):
    reason = serializers.CharField()
    count = serializers.IntegerField()


class ConditionSerializer(serializers.Serializer):
    """What is to be known of a pipeline at a glance."""

    pipeline = serializers.UUIDField()
    status = StatusSerializer()
    dead_letters = serializers.IntegerField(help_text="Waiting or being redelivered.")
    oldest = serializers.DateTimeField(allow_null=True, help_text="When the oldest of them first failed.")
    reasons = ReasonCountSerializer(source="letters", many=True, help_text="Why they failed, most frequent first.")
    breakers = OutputBreakerSerializer(many=True, help_text="Circuit breakers that are not closed.")
