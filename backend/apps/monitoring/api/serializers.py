from typing import Any

from rest_framework import serializers

from backend.apps.connectors.models import Connector
from backend.apps.monitoring.models import Alert, AlertRule
from backend.apps.pipelines.models import Pipeline
from backend.apps.workspaces.api.base import workspace_of
from backend.apps.workspaces.api.strict import StrictModelSerializer
from backend.domain.connector import connectors


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
        destination = connectors.get(connector.type).destination if connector else None
        if connector is not None and (
            destination is None or destination.options_model.model_json_schema().get("required")
        ):
            raise serializers.ValidationError(f"{connector.name} cannot take alerts; choose one that needs no options.")
        return connector


class AlertSerializer(serializers.ModelSerializer):
    rule_name = serializers.CharField(source="rule.name")
    kind = serializers.CharField(source="rule.kind")

    class Meta:
        model = Alert
        fields = ["id", "rule", "rule_name", "kind", "subject", "message", "started_at", "ended_at", "notification"]
        read_only_fields = fields
