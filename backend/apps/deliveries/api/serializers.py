import base64

from rest_framework import serializers

from backend.apps.deliveries.models import Attempt, DeadLetter, OutputEvent
from backend.apps.rest.strict import StrictSerializer
from backend.domain.breaker import BreakerState

_SHOWN_BYTES = 64 * 1024


class DeadLetterSerializer(serializers.ModelSerializer):
    pipeline = serializers.UUIDField(source="pipeline_id", allow_null=True)

    class Meta:
        model = DeadLetter
        fields = [
            "id",
            "pipeline",
            "output",
            "stage",
            "message_id",
            "version",
            "state",
            "reason",
            "error",
            "attempts",
            "redeliveries",
            "due_at",
            "use_current_version",
            "body_bytes",
            "content_type",
            "received_at",
            "first_at",
            "last_at",
            "closed_at",
            "closed_by",
            "closed_why",
        ]
        read_only_fields = fields


class DeadLetterDetailSerializer(DeadLetterSerializer):
    body = serializers.SerializerMethodField(help_text="The payload, at most 64 KiB of it.")
    body_is_base64 = serializers.SerializerMethodField(help_text="Whether the payload is not UTF-8 text.")

    class Meta(DeadLetterSerializer.Meta):
        fields = [*DeadLetterSerializer.Meta.fields, "headers", "body", "body_is_base64"]
        read_only_fields = fields

    def get_body(self, letter: DeadLetter) -> str:
        raw = bytes(letter.body)[:_SHOWN_BYTES]
        return base64.b64encode(raw).decode() if self.get_body_is_base64(letter) else raw.decode(errors="replace")

    def get_body_is_base64(self, letter: DeadLetter) -> bool:
        try:
            bytes(letter.body).decode()
        except UnicodeDecodeError:
            return True
        return False


class DeadLetterSelectionSerializer(StrictSerializer):
    """Which dead letters: the filters of the list, as an object."""

    filter = serializers.DictField(child=serializers.CharField(), default=dict)


class RedriveSerializer(DeadLetterSelectionSerializer):
    version = serializers.ChoiceField(
        choices=["original", "current"],
        default="original",
        help_text="Deliver with the version under which it was accepted, or with the published version.",
    )


class DiscardSerializer(DeadLetterSelectionSerializer):
    reason = serializers.CharField(max_length=500)


class CountSerializer(serializers.Serializer):
    count = serializers.IntegerField()


class DeadLetterGroupSerializer(serializers.Serializer):
    pipeline = serializers.UUIDField(source="pipeline_id", allow_null=True)
    output = serializers.CharField()
    reason = serializers.CharField()
    count = serializers.IntegerField()
    oldest = serializers.DateTimeField()
    next_due = serializers.DateTimeField(allow_null=True)


class PreviewSerializer(serializers.Serializer):
    """What a redrive or discard of this selection would affect."""

    count = serializers.IntegerField(help_text="Waiting dead letters only; others are not affected.")
    outputs = serializers.IntegerField()
    groups = DeadLetterGroupSerializer(many=True)


class AttemptSerializer(serializers.ModelSerializer):
    pipeline = serializers.UUIDField(source="pipeline_id")

    class Meta:
        model = Attempt
        fields = [
            "id",
            "pipeline",
            "output",
            "message_id",
            "version",
            "at",
            "number",
            "milliseconds",
            "status",
            "reason",
            "error",
            "response",
        ]
        read_only_fields = fields


class OutputEventSerializer(serializers.ModelSerializer):
    pipeline = serializers.UUIDField(source="pipeline_id")

    class Meta:
        model = OutputEvent
        fields = ["id", "pipeline", "output", "at", "state", "until", "cause"]
        read_only_fields = fields


class BreakerErrorSerializer(serializers.Serializer):
    at = serializers.DateTimeField()
    message = serializers.CharField()


class BreakerSerializer(serializers.Serializer):
    state = serializers.ChoiceField(choices=list(BreakerState))
    since = serializers.DateTimeField(allow_null=True)
    until = serializers.DateTimeField(allow_null=True, help_text="When a single message is sent as a probe.")
    cause = serializers.CharField()
    last_errors = BreakerErrorSerializer(many=True, help_text="Newest first.")


class RateLimitSerializer(serializers.Serializer):
    messages = serializers.IntegerField()
    period_seconds = serializers.FloatField()
    burst = serializers.IntegerField()


class OutputSerializer(serializers.Serializer):
    name = serializers.CharField()
    connector = serializers.UUIDField()
    rate_limit = RateLimitSerializer(allow_null=True)
    dead_letters = serializers.IntegerField(help_text="Waiting or being redelivered.")
    breaker = BreakerSerializer()


class SetBreakerSerializer(StrictSerializer):
    open = serializers.BooleanField(help_text="Whether the breaker is to be open, so that nothing is sent.")
    seconds = serializers.FloatField(
        min_value=1,
        max_value=86400,
        required=False,
        help_text="How long it stays open; by default, the configured time.",
    )
