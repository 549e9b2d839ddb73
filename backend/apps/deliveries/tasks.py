import math
from datetime import timedelta

from celery import shared_task
from django.conf import settings

from backend.apps.deliveries import partitions
from backend.apps.deliveries import retention as dead_letters
from backend.apps.exports.retention import exports_remove
from backend.apps.kafka_sink.services import quarantine_limit
from backend.apps.usage.billed import billed_remove
from backend.network.postgresql import answers_within

_STATEMENT_SECONDS = 600.0
"""Sizes are summed over all dead letters."""


@shared_task  # type: ignore[untyped-decorator]
@answers_within(_STATEMENT_SECONDS)
def retention() -> None:
    """Enforces the retention limits of attempts, billed deliveries, dead letters, quarantined records and exports."""
    console = settings.CONSOLE
    partitions.partitions_ensure()
    partitions.partitions_drop(console.attempts_kept_days)
    kept = timedelta(days=console.dead_letters_kept_days)
    dead_letters.dead_letters_expire(keep=kept, most_bytes=console.dead_letters_kept_bytes)
    # Reconciliation looks for what the messages in Kafka have become.
    closed_kept_hours = max(24 * console.closed_dead_letters_kept_days, console.topic_retention_hours + 24)
    closed_kept = timedelta(hours=closed_kept_hours)
    dead_letters.dead_letters_remove(closed=closed_kept, expired=max(kept, closed_kept))
    # A copy of a message may wait in Kafka, then as a dead letter, then in Kafka once more.
    copies_days = console.dead_letters_kept_days + 2 * math.ceil(console.topic_retention_hours / 24) + 1
    billed_remove(keep=timedelta(days=copies_days))
    quarantine_limit()
    exports_days = max(console.exports_kept_days, console.aborted_exports_kept_days)
    exports_remove(keep=timedelta(days=exports_days))
