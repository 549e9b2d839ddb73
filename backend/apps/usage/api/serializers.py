from datetime import UTC, datetime, timedelta
from typing import Any

from rest_framework import serializers

from backend.apps.usage.selectors import STEPS

_MOST_ROWS = {"minute": timedelta(days=2), "hour": timedelta(days=62), "day": timedelta(days=3660)}


class UsageQuerySerializer(serializers.Serializer):
    """The range, step and filters of a usage query."""

    since = serializers.DateTimeField(required=False, help_text="Start, inclusive; 30 days ago if not set.")
    until = serializers.DateTimeField(required=False, help_text="End, exclusive; now if not set.")
    step = serializers.ChoiceField(choices=list(STEPS), default="day")
    pipeline = serializers.UUIDField(required=False)
    output = serializers.CharField(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        until = attrs.setdefault("until", datetime.now(UTC))
        since = attrs.setdefault("since", until - min(timedelta(days=30), _MOST_ROWS[attrs["step"]]))
        if since >= until:
            raise serializers.ValidationError({"since": ["It must be before 'until'."]})
        if until - since > _MOST_ROWS[attrs["step"]]:
            raise serializers.ValidationError(
                {"step": [f"Choose a longer step: by {attrs['step']}, at most {_MOST_ROWS[attrs['step']].days} days."]}
            )
        return attrs


class BilledQuerySerializer(serializers.Serializer):
    """The message whose deliveries are asked for."""

    message_id = serializers.CharField(max_length=64)


class BilledDeliverySerializer(serializers.Serializer):
    pipeline = serializers.UUIDField(source="pipeline_id")
    output = serializers.CharField()
    at = serializers.DateTimeField(help_text="When it was delivered.")
    bytes = serializers.IntegerField()


class UsageSerializer(serializers.Serializer):
    period = serializers.DateTimeField(help_text="Its start, in UTC.")
    pipeline = serializers.UUIDField(source="pipeline_id")
    pipeline_name = serializers.CharField(help_text="Empty when the pipeline was deleted.")
    output = serializers.CharField()
    deliveries = serializers.IntegerField()
    bytes = serializers.IntegerField()
