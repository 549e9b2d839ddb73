from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from backend.apps.collections.selectors import collection_state, collection_store, connection_of, topic_name
from backend.apps.connectors.models import Connector
from backend.apps.rest.strict import StrictSerializer
from backend.connectors.collection import CollectionConnection
from backend.domain.model import UnreadableConfigError


class CollectionPartitionSerializer(serializers.Serializer):
    partition = serializers.IntegerField()
    start_offset = serializers.IntegerField(help_text="Of the first document that is kept.")
    end_offset = serializers.IntegerField(help_text="That the next document will have.")
    documents = serializers.IntegerField()
    bytes = serializers.IntegerField(help_text="Size of the files.")
    files = serializers.IntegerField()
    oldest = serializers.IntegerField(allow_null=True, help_text="Milliseconds since 1970.")
    newest = serializers.IntegerField(allow_null=True, help_text="Milliseconds since 1970.")


class CollectionSerializer(serializers.Serializer):
    """A collection, and what it holds."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    created_at = serializers.DateTimeField()
    partitions = serializers.IntegerField(help_text="Number of partitions.")
    documents = serializers.IntegerField()
    bytes = serializers.IntegerField(help_text="Size of the files.")
    newest = serializers.IntegerField(
        allow_null=True, help_text="When a document was last appended, in milliseconds since 1970."
    )
    leader_epoch = serializers.IntegerField(help_text="Grows by one at each reset.")
    unavailable = serializers.CharField(help_text="Why it cannot be read at the moment; empty when it can.")

    def to_representation(self, instance: Connector) -> dict[str, Any]:
        state = collection_state(instance)
        return {
            "id": str(instance.pk),
            "name": instance.name,
            "created_at": serializers.DateTimeField().to_representation(instance.created_at),
            "partitions": max(len(state.partitions), int(instance.connection.get("partitions", 1))),
            "documents": sum(part.documents for part in state.partitions),
            "bytes": sum(part.bytes for part in state.partitions),
            "newest": max((part.newest for part in state.partitions if part.newest is not None), default=None),
            "leader_epoch": state.leader_epoch,
            "unavailable": state.unavailable,
        } | self.further(instance, state.partitions)

    def further(self, collection: Connector, partitions: list[Any]) -> dict[str, Any]:
        return {}


class CollectionDetailSerializer(CollectionSerializer):
    partition_states = CollectionPartitionSerializer(many=True)
    topic = serializers.CharField(help_text="Its name for Kafka consumers.")
    table = serializers.CharField(help_text="Where the Delta table is, or will be: a folder, or a URL.")
    keep_hours = serializers.IntegerField(allow_null=True)
    keep_bytes = serializers.IntegerField(allow_null=True)
    avro_schema = serializers.DictField(allow_null=True)
    reduce = serializers.CharField(help_text="none, or last_by_key: only the last document of each key is kept.")
    values = serializers.CharField(help_text="json or avro: how Kafka consumers get values.")
    deletions = serializers.CharField(help_text="kafka or cdc: how Kafka consumers get deletions.")

    def further(self, collection: Connector, partitions: list[Any]) -> dict[str, Any]:
        try:
            connection = connection_of(collection).model_dump(mode="json")
        except UnreadableConfigError as error:
            connection = CollectionConnection.model_validate({}).model_dump(mode="json") | {"unavailable": str(error)}
        connection.pop("partitions", None)
        return {
            "partition_states": CollectionPartitionSerializer(partitions, many=True).data,
            "topic": topic_name(collection),
            "table": collection_store().location(str(collection.workspace_id), str(collection.pk)).uri,
        } | connection


class DocumentQuerySerializer(StrictSerializer):
    partition = serializers.IntegerField(
        required=False, min_value=0, help_text="By default the one to which the key belongs, or the first."
    )
    key = serializers.CharField(required=False, max_length=2000, trim_whitespace=False)
    before = serializers.IntegerField(
        required=False, min_value=0, help_text="Documents with lower offsets; by default the newest."
    )
    limit = serializers.IntegerField(default=50, min_value=1, max_value=500)


class DocumentSerializer(serializers.Serializer):
    offset = serializers.IntegerField()
    timestamp = serializers.IntegerField(help_text="When it was appended, in milliseconds since 1970.")
    key = serializers.CharField(allow_null=True)
    key_encoding = serializers.CharField(help_text="utf-8, or base64 for what is no text.")
    value = serializers.CharField(help_text="Cut off if it is long.")
    encoding = serializers.CharField(help_text="Of the value: utf-8, or base64 for what is no text.")
    is_cut = serializers.BooleanField()
    bytes = serializers.IntegerField(help_text="Size of the whole value.")
    deleted = serializers.BooleanField(help_text="Whether it says that what has its key is deleted.")
    headers = serializers.DictField(child=serializers.CharField())


class DocumentPageSerializer(serializers.Serializer):
    """Documents of one partition, newest first."""

    partition = serializers.IntegerField()
    results = DocumentSerializer(many=True)
    before = serializers.SerializerMethodField(
        help_text="With which the next page is asked for; empty when there is none."
    )

    @extend_schema_field(serializers.IntegerField(allow_null=True))
    def get_before(self, page: dict[str, Any]) -> int | None:
        before: int | None = page["before"]
        return before
