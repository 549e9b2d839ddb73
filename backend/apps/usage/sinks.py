"""Aggregates billing events from Kafka into usage."""

import json
from collections import defaultdict
from typing import Any

from confluent_kafka import Message as KafkaRecord
from django.db import connection

from backend.apps.kafka_sink.sink import Sink
from backend.domain import routing

_ADD = """
INSERT INTO usage_usageminute AS u (workspace_id, pipeline_id, output, minute, deliveries, bytes)
VALUES (%s, %s, %s, %s, %s, %s)
ON CONFLICT (pipeline_id, output, minute)
DO UPDATE SET deliveries = u.deliveries + excluded.deliveries, bytes = u.bytes + excluded.bytes
"""

MinuteKey = tuple[str, str, str, str]
"""Workspace, pipeline, output, and the minute as ISO 8601."""


def minute_key(event: dict[str, Any]) -> MinuteKey:
    return event["workspace_id"], event["pipeline_id"], event["output"], event["at"][:16] + ":00Z"


class UsageSink(Sink):
    """``firehose_billing``: deliveries and bytes per minute and output."""

    name = "usage"
    topic = routing.BILLING

    def write(self, records: list[KafkaRecord]) -> None:
        added: defaultdict[MinuteKey, list[int]] = defaultdict(lambda: [0, 0])
        for record in records:
            event = json.loads(record.value() or b"{}")  # type: ignore[arg-type]
            sums = added[minute_key(event)]
            sums[0] += 1
            sums[1] += event["bytes"]
        with connection.cursor() as cursor:
            # In a fixed order, so that two workers cannot deadlock.
            cursor.executemany(_ADD, [(*key, *sums) for key, sums in sorted(added.items())])
