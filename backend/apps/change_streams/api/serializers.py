from typing import Any

from rest_framework import serializers

from backend.apps.change_streams.selectors import FAILING, SENDING, SILENT, STARTING, stream_progress
from backend.apps.connectors.models import Connector


class ChangeStreamSerializer(serializers.Serializer):
    """A change stream, and how far it has come."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    reduce = serializers.CharField(help_text="deltas, or last_by_key.")
    transport = serializers.CharField(help_text="kafka, or http.")
    collections = serializers.ListField(
        child=serializers.CharField(), help_text="Names of the collections that feed it; outputs may feed it as well."
    )
    state = serializers.ChoiceField(
        [STARTING, SENDING, FAILING, SILENT],
        help_text="silent: nothing is known of it, since the process that sends it does not report.",
    )
    complete = serializers.IntegerField(
        allow_null=True,
        help_text="Up to which time it was sent, in milliseconds since 1970; null before the first transaction.",
    )
    updates = serializers.IntegerField(help_text="Of the last transaction.")
    waiting = serializers.IntegerField(
        allow_null=True, help_text="Documents that are not sent yet; null when that is not known."
    )
    failures = serializers.ListField(
        child=serializers.CharField(), help_text="Why nothing can be sent, or a collection not be taken over."
    )
    reported_at = serializers.DateTimeField(allow_null=True)

    def to_representation(self, instance: Connector) -> dict[str, Any]:
        connection = instance.connection
        progress = stream_progress(instance)
        reported = progress.reported_at
        return {
            "id": str(instance.pk),
            "name": instance.name,
            "reduce": connection.get("reduce", "deltas"),
            "transport": connection.get("transport", {}).get("type", ""),
            "collections": connection.get("collections", []),
            "state": progress.state,
            "complete": progress.complete,
            "updates": progress.updates,
            "waiting": progress.waiting,
            "failures": progress.failures,
            "reported_at": reported and serializers.DateTimeField().to_representation(reported),
        }
