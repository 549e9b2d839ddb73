from collections.abc import Mapping
from typing import Any, get_args

from rest_framework import serializers

from backend.apps.connectors.dependents import DependentKind
from backend.apps.connectors.models import Connector
from backend.apps.connectors.selectors import connection_shown, connector_failure
from backend.apps.connectors.services import connection_validate
from backend.apps.rest.etag import ETagField
from backend.apps.rest.strict import DocumentSerializer, StrictSerializer
from backend.apps.workspaces.api.base import workspace_of
from backend.domain.capabilities import CAPABILITIES
from backend.domain.connector import DoubtfulAnswer


class CapabilitySerializer(serializers.Serializer):
    options_schema = serializers.DictField(help_text="JSON Schema of the options of one use.")


class ConnectorTypeSerializer(serializers.Serializer):
    type = serializers.CharField()
    title = serializers.CharField()
    description = serializers.CharField()
    unavailable = serializers.CharField(help_text="Why it cannot be used on this server; empty when it can.")
    connection_schema = serializers.DictField(help_text="JSON Schema of the connection; secrets are writeOnly.")
    capabilities = serializers.DictField(
        child=CapabilitySerializer(),
        help_text=f"What pipelines can use it for, by name: {', '.join(kind.name for kind in CAPABILITIES)}.",
    )


class ConnectorSerializer(DocumentSerializer):
    etag = ETagField()
    connection = serializers.DictField(
        help_text="As the type's connection schema defines. Secrets are returned as ********; "
        "sending that back keeps them."
    )

    failure = serializers.SerializerMethodField(help_text="Why it cannot be used; empty when it can.")

    class Meta:
        model = Connector
        fields = ["id", "name", "type", "connection", "failure", "created_at", "updated_at", "etag"]
        read_only_fields = ["id", "created_at", "updated_at"]

    def check_document(self, data: Mapping[str, Any]) -> None:
        if isinstance(type := data.get("type"), str) and isinstance(connection := data.get("connection"), dict):
            connection_validate(
                workspace=workspace_of(self.context["request"]),
                type=type,
                connection=connection,
                stored=self.instance,
            )

    def get_failure(self, connector: Connector) -> str:
        return connector_failure(connector)

    def to_representation(self, instance: Connector) -> dict[str, Any]:
        return super().to_representation(instance) | {"connection": connection_shown(instance)}


class ConnectorUserSerializer(serializers.Serializer):
    """What uses a connector, which cannot be deleted then: a pipeline, an alert rule, a connector that reads from it,
    or what a deleted pipeline has registered in its system and is still to be removed."""

    kind = serializers.ChoiceField(get_args(DependentKind))
    id = serializers.UUIDField()
    name = serializers.CharField()


class ConnectionTestSerializer(StrictSerializer):
    echoed = tuple(ConnectorSerializer.Meta.fields)
    type = serializers.CharField()
    connection = serializers.DictField()


class SavedConnectionTestSerializer(StrictSerializer):
    echoed = tuple(ConnectorSerializer.Meta.fields)
    connection = serializers.DictField(required=False, help_text="Masks stand for the stored secrets.")


class TestResultSerializer(serializers.Serializer):
    detail = serializers.CharField(help_text="What was reached.")
    doubtful = serializers.SerializerMethodField(help_text="Whether the answer may be a mistake in the address.")

    def get_doubtful(self, result: dict[str, str]) -> bool:
        return isinstance(result["detail"], DoubtfulAnswer)
