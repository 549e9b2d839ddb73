from rest_framework import serializers

from backend.apps.connectors.models import Connector
from backend.apps.workspaces.api.etag import ETagField
from backend.apps.workspaces.api.strict import StrictModelSerializer, StrictSerializer


class ConnectorTypeSerializer(serializers.Serializer):
    type = serializers.CharField()
    title = serializers.CharField()
    description = serializers.CharField()
    connection_schema = serializers.DictField(help_text="JSON Schema of the connection; secrets are writeOnly.")
    verifies = serializers.BooleanField(help_text="Whether it can verify what comes in to a pipeline.")
    destination_schema = serializers.DictField(
        allow_null=True, help_text="JSON Schema of an output's options; null when the type cannot deliver."
    )


class ConnectorSerializer(StrictModelSerializer):
    etag = ETagField()
    connection = serializers.DictField(
        help_text="As the type's connection schema says. Secrets come back as ********, which sent back keeps them."
    )

    class Meta:
        model = Connector
        fields = ["id", "name", "type", "connection", "created_at", "updated_at", "etag"]
        read_only_fields = ["id", "created_at", "updated_at"]


class ConnectionTestSerializer(StrictSerializer):
    echoed = tuple(ConnectorSerializer.Meta.fields)
    type = serializers.CharField()
    connection = serializers.DictField()


class SavedConnectionTestSerializer(StrictSerializer):
    echoed = tuple(ConnectorSerializer.Meta.fields)
    connection = serializers.DictField(required=False, help_text="Masks stand for the stored secrets.")


class TestResultSerializer(serializers.Serializer):
    detail = serializers.CharField(help_text="What was reached.")
