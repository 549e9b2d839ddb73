from rest_framework import serializers

from backend.apps.manager.selectors import State
from backend.domain.capabilities import Reading


class CompleteBatchSerializer(serializers.Serializer):
    began_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField()
    rows = serializers.IntegerField()


class CauseSerializer(serializers.Serializer):
    path = serializers.CharField(help_text="The field that differs from what is read now.")
    title = serializers.CharField(help_text="The field's label in forms.")


class InputChangeSerializer(serializers.Serializer):
    """What publishing a version does to the reading of the input."""

    starts_anew = serializers.BooleanField(
        help_text="Whether the input is read as if nothing had been read yet, so that messages may come in again."
    )
    causes = CauseSerializer(many=True, help_text="Why it starts anew; empty when it does not.")
    ends = serializers.BooleanField(
        help_text="Whether an input that is read now is not read any more, and the position in it is given up."
    )


class BatchPartsSerializer(serializers.Serializer):
    left = serializers.IntegerField(help_text="How many are not read to their ends.")
    total = serializers.IntegerField()


class InputStateSerializer(serializers.Serializer):
    """How the input of the published version is read."""

    state = serializers.ChoiceField(
        choices=[(state.value, state.value) for state in State],
        help_text="none when the published version has no input that Headrace reads.",
    )
    reading = serializers.ChoiceField(
        choices=[(reading.value, reading.value) for reading in Reading],
        allow_null=True,
        help_text="In batches, to the end and then again from there, or as a stream.",
    )
    first = serializers.BooleanField(help_text="Whether no batch has been read to its end yet.")
    began_at = serializers.DateTimeField(
        allow_null=True, help_text="When the batch began, or since when the stream is read."
    )
    rows = serializers.IntegerField(help_text="Rows read since then by all readers, also those that were interrupted.")
    estimate = serializers.IntegerField(
        allow_null=True,
        help_text="About how many rows the batch has, or wait in the stream; null when that is not known.",
    )
    last_batch = CompleteBatchSerializer(allow_null=True, help_text="The last batch that was read to its end.")
    next_at = serializers.DateTimeField(allow_null=True, help_text="When the input is offered to a reader next.")
    breakpoint = serializers.CharField(
        help_text="Where a reader would go on, as JSON, shortened; empty before anything was read and for streams."
    )
    failure = serializers.CharField(help_text="Why the input cannot be read at the moment; empty when it can.")
    failing_since = serializers.DateTimeField(allow_null=True)
    parts = BatchPartsSerializer(
        allow_null=True, help_text="Of a batch that several readers read in parts; null when it is read in one piece."
    )
