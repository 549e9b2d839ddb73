"""Keeps records that cannot be written to the database, so that the others can."""

import base64
import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from confluent_kafka import Message
from django.db.models import Sum
from django.db.models.functions import Length

from backend.apps.kafka_sink.faults import storable
from backend.apps.kafka_sink.models import KnownTopic, QuarantinedRecord, SinkOffset

log = logging.getLogger(__name__)

_KEPT_DAYS = 30
_KEPT_RECORDS = 100_000
_KEPT_BYTES = 1024**3
_REMOVED_AT_ONCE = 1000


def record_quarantine(*, sink: str, record: Message, error: Exception) -> None:
    """Keeps a record of Kafka with its position."""
    headers: Any = record.headers() or []
    _quarantine(
        sink=sink,
        position=f"{record.topic()}[{record.partition()}]@{record.offset()}",
        error=error,
        key=bytes(record.key() or b""),  # type: ignore[arg-type]
        value=bytes(record.value() or b""),  # type: ignore[arg-type]
        headers=[[storable(name), base64.b64encode(value or b"").decode()] for name, value in headers],
    )


def entry_quarantine(*, sink: str, stream: str, entry_id: bytes, fields: dict[bytes, bytes], error: Exception) -> None:
    """Keeps an entry of a Redis stream, whose fields are stored as headers."""
    _quarantine(
        sink=sink,
        position=f"{stream}@{entry_id.decode()}",
        error=error,
        key=b"",
        value=b"",
        headers=[
            [storable(name.decode(errors="replace")), base64.b64encode(value).decode()]
            for name, value in fields.items()
        ],
    )


def _quarantine(*, sink: str, position: str, error: Exception, **content: Any) -> None:
    reason, text = type(error).__name__, storable(str(error))
    log.error("A record cannot be written and is set aside: %s at %s: %s: %s", sink, position, reason, text[:300])
    kept = {"reason": reason, "error": text[:10_000], **content}
    QuarantinedRecord.objects.get_or_create(sink=sink, position=position, defaults=kept)


def topics_recognize(ids: Mapping[str, str]) -> set[str]:
    """Remembers the topics by the ids that Kafka gave them; returns those that were created again since."""
    known = dict(KnownTopic.objects.values_list("name", "topic_id"))
    KnownTopic.objects.bulk_create(
        [KnownTopic(name=name, topic_id=topic_id) for name, topic_id in ids.items()],
        update_conflicts=True,
        unique_fields=["name"],
        update_fields=["topic_id"],
    )
    return {name for name, topic_id in ids.items() if known.get(name, topic_id) != topic_id}


def sink_restart(*, sink: str) -> None:
    """Lets the sink read its topic from the first record. It must not be running."""
    SinkOffset.objects.filter(sink=sink).delete()


def quarantine_limit() -> int:
    """Removes the oldest records beyond 30 days, 100,000 records and 1 GiB; returns how many."""
    removed = _remove(QuarantinedRecord.objects.filter(at__lt=datetime.now(UTC) - timedelta(days=_KEPT_DAYS)))
    while (excess := QuarantinedRecord.objects.count() - _KEPT_RECORDS) > 0 or _total_bytes() > _KEPT_BYTES:
        removed += _remove(QuarantinedRecord.objects.all(), min(max(excess, 1), _REMOVED_AT_ONCE))
    return removed


def _total_bytes() -> int:
    total: int | None = QuarantinedRecord.objects.aggregate(n=Sum(Length("value")))["n"]
    return total or 0


def _remove(records: Any, most: int | None = None) -> int:
    ids = list(records.order_by("pk").values_list("pk", flat=True)[:most])
    return int(QuarantinedRecord.objects.filter(pk__in=ids).delete()[0])
