"""The messages of ``/ws/live/``, in the API's schema, from which the console's types are generated."""

from drf_spectacular.utils import OpenApiWebhook, extend_schema
from rest_framework import serializers

from backend.apps.deliveries.api.serializers import BreakerSerializer
from backend.apps.monitoring.api.serializers import ConditionSerializer


class RateLimitStateSerializer(serializers.Serializer):
    tokens = serializers.IntegerField(help_text="Messages that may be sent at once.")
    most = serializers.IntegerField(help_text="Tokens after an idle period.")
    messages = serializers.IntegerField(help_text="At most so many…")
    period_seconds = serializers.FloatField(help_text="…in any period of this length.")
    waiting = serializers.IntegerField(help_text="Messages that wait for a token.")


class OutputStateSerializer(serializers.Serializer):
    breaker = BreakerSerializer()
    dead_letters = serializers.IntegerField(help_text="Waiting or being redelivered.")
    rate_limit = RateLimitStateSerializer(allow_null=True, help_text="Null without a rate limit.")
    held_until = serializers.DateTimeField(
        allow_null=True, help_text="Until when the receiver asked to be left alone (Retry-After); null if it did not."
    )


class OutputLimitSerializer(serializers.Serializer):
    pipeline = serializers.UUIDField()
    output = serializers.CharField(help_text="The output, or the external call, that it limits.")
    rate_limit = RateLimitStateSerializer()


class RatesSerializer(serializers.Serializer):
    """Messages per second."""

    accepted = serializers.FloatField()
    delivered = serializers.FloatField()
    failed = serializers.FloatField(help_text="Those that became dead letters.")


class MonthUsageSerializer(serializers.Serializer):
    since = serializers.DateTimeField(help_text="When the month began, in UTC.")
    deliveries = serializers.IntegerField()
    bytes = serializers.IntegerField()


class BacklogSerializer(serializers.Serializer):
    at = serializers.IntegerField(help_text="The minute, by the Unix time at which it began.")
    messages = serializers.IntegerField(help_text="Of all pipelines of the workspace together.")
    pipelines = serializers.DictField(
        child=serializers.IntegerField(), help_text="By pipeline; those for which none waited are left out."
    )


class LiveNewsSerializer(serializers.Serializer):
    """Sent once a second. All numbers are absolute."""

    type = serializers.ChoiceField(choices=["news"])
    at = serializers.IntegerField(help_text="Unix time.")
    pipelines = serializers.DictField(
        child=serializers.DictField(child=serializers.DictField(child=serializers.IntegerField())),
        help_text="Counts of the last few seconds by pipeline, Unix time in seconds and event.",
    )
    outputs = serializers.DictField(
        child=serializers.DictField(child=OutputStateSerializer()),
        help_text="Circuit breakers and rate limits by pipeline and output or external call.",
    )
    conditions = ConditionSerializer(
        many=True,
        allow_null=True,
        help_text="Of the workspace's pipelines, as /api/v1/conditions/ has them; null until they have been read.",
    )
    rates = RatesSerializer(
        allow_null=True,
        help_text="Of all pipelines of the workspace together, over the last three seconds that are complete; null "
        "until they have been read.",
    )
    waiting = BacklogSerializer(
        allow_null=True,
        help_text="Messages that waited at the newest minute of the history, as /api/v1/throughput/ has them; null if "
        "that is not known, or nothing happened lately and nothing waited.",
    )
    limits = OutputLimitSerializer(
        many=True, help_text="Six rate limits of the workspace at most, those for which most messages wait first."
    )
    usage = MonthUsageSerializer(allow_null=True, help_text="Of the workspace; null until it has been read.")
    sql_sources = serializers.CharField(
        allow_blank=True,
        help_text="Differs as soon as a stream or table of the workspace is declared, gets columns or is dropped, for "
        "example because a connector has brought a new table; empty until it has been read.",
    )


class LiveStaleSerializer(serializers.Serializer):
    """Sent instead of news while these cannot be read."""

    type = serializers.ChoiceField(choices=["stale"])
    reason = serializers.CharField()


class LiveShownSerializer(serializers.Serializer):
    """Sent by the browser whenever it shows other pipelines."""

    pipelines = serializers.ListField(child=serializers.CharField(), help_text="At most 200 ids.")


news = OpenApiWebhook(
    name="live",
    decorator=extend_schema(
        summary="Live news",
        description="A message of the WebSocket /ws/live/, sent once a second while it is open.",
        request={"application/json": LiveNewsSerializer},
        responses={"200": LiveShownSerializer},
    ),
)
stale = OpenApiWebhook(
    name="live-stale",
    decorator=extend_schema(
        summary="No live news",
        description="A message of the WebSocket /ws/live/ while the numbers cannot be read.",
        request={"application/json": LiveStaleSerializer},
        responses={"200": None},
    ),
)
