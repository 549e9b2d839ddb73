"""Reconciles usage with deliveries: the billing topic, read again from its start, against the table."""

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from backend.apps.usage.models import UsageMinute
from backend.apps.usage.sinks import MinuteKey, minute_key
from backend.domain import routing
from backend.settings import platform_settings

_SECONDS = 30.0


@dataclass
class Reconciliation:
    """The result for a range. ``differences`` are (minute key, delivered, in the table)."""

    events: int = 0
    distinct: int = 0
    usage: int = 0
    repeated: list[tuple[str, str, str]] = field(default_factory=list)
    differences: list[tuple[MinuteKey, int, int]] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        return not self.repeated and not self.differences and self.events == self.usage


def reconcile(since: datetime, until: datetime) -> Reconciliation:
    """Compares each minute from ``since`` up to but not including ``until``.

    Raises KafkaException when the topic cannot be read. Events past the topic's retention
    show as differences.
    """
    result = Reconciliation()
    seen: set[tuple[str, str, str]] = set()
    delivered: defaultdict[MinuteKey, int] = defaultdict(int)
    first, last = since.isoformat(), until.isoformat()
    for event in _events():
        at = datetime.fromisoformat(event["at"]).isoformat()
        if not first <= at < last:
            continue
        result.events += 1
        delivery = (event["pipeline_id"], event["output"], event["message_id"])
        if delivery in seen:
            result.repeated.append(delivery)
        seen.add(delivery)
        delivered[minute_key(event)] += 1
    result.distinct = len(seen)
    stored: dict[MinuteKey, int] = {}
    for row in UsageMinute.objects.filter(minute__gte=since, minute__lt=until):
        key = (str(row.workspace_id), str(row.pipeline_id), row.output, f"{row.minute:%Y-%m-%dT%H:%M}:00Z")
        stored[key] = row.deliveries
    result.usage = sum(stored.values())
    result.differences = [
        (key, delivered.get(key, 0), stored.get(key, 0))
        for key in sorted({*delivered, *stored})
        if delivered.get(key, 0) != stored.get(key, 0)
    ]
    return result


def _events() -> Any:
    consumer = Consumer(
        {
            "bootstrap.servers": platform_settings().kafka_bootstrap_servers,
            "group.id": "headrace-usage-reconcile",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        partitions = consumer.list_topics(routing.BILLING, timeout=_SECONDS).topics[routing.BILLING].partitions
        left = set(partitions)
        consumer.assign([TopicPartition(routing.BILLING, partition, 0) for partition in partitions])
        while left:
            for record in consumer.consume(5000, _SECONDS):
                error = record.error()
                if error is None:
                    yield msgspec.json.decode(record.value() or b"{}")  # type: ignore[arg-type]
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(record.partition())
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
