"""Queries on what the sinks have set aside."""

from django.db.models import Count

from backend.apps.kafka_sink.models import QuarantinedRecord


def quarantined_by_reason() -> dict[tuple[str, str], int]:
    """Records that could not be written, by worker and reason."""
    counted = QuarantinedRecord.objects.values_list("sink", "reason").annotate(n=Count("pk"))
    return {(sink, reason): n for sink, reason, n in counted}
