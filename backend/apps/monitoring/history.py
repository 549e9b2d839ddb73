"""Aggregates counts from Redis, which has them by second for two hours, into PostgreSQL by minute."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.db import DatabaseError, InterfaceError, close_old_connections, connection
from redis.exceptions import RedisError

from backend.apps.kafka_sink.faults import write_good
from backend.apps.kafka_sink.services import entry_quarantine
from backend.apps.monitoring.models import CountMinute
from backend.apps.pipelines.models import Pipeline
from backend.network.redis_client import redis_client
from backend.telemetry import keys

log = logging.getLogger(__name__)

_INTERVAL_SECONDS = 15.0
_SETTLED_SECONDS = 20
"""A minute is complete this long after its end, since executors report once a second."""
_LOOK_BACK_MINUTES = keys.SECONDS_KEPT // 60 - 10
_KEPT_DAYS = 30


def run(stop: threading.Event) -> None:
    """Aggregates each minute once it is complete, until ``stop`` is set, and catches up on missed minutes."""
    folded = 0
    while not stop.is_set():
        close_old_connections()
        last = (int(time.time()) - _SETTLED_SECONDS) // 60 - 1
        first = max(folded + 1, last - _LOOK_BACK_MINUTES) if folded else last - _LOOK_BACK_MINUTES
        try:
            if last >= first:
                fold(first, last)
                CountMinute.objects.filter(minute__lt=datetime.now(UTC) - timedelta(days=_KEPT_DAYS)).delete()
                folded = last
        except (RedisError, InterfaceError, DatabaseError) as error:
            log.warning("Count history is delayed: %s", str(error).splitlines()[0] if str(error) else error)
            connection.close()
        stop.wait(_INTERVAL_SECONDS)
    connection.close()


def fold(first: int, last: int) -> None:
    """Writes the minutes (Unix time / 60) from ``first`` to ``last``, and sets aside what cannot be written. Safe to
    repeat."""
    client = redis_client()
    for pipeline_id in Pipeline.objects.values_list("pk", flat=True):
        with client.pipeline(transaction=False) as batch:
            for minute in range(first, last + 1):
                batch.hgetall(keys.by_second(str(pipeline_id), minute))
            hashes: list[Any] = batch.execute()
        counted = [
            _Counted(pipeline_id, minute, seconds)
            for minute, seconds in zip(range(first, last + 1), hashes, strict=True)
            if seconds
        ]
        write_good(counted, _write, _set_aside)


class _Counted(NamedTuple):
    """A minute of a pipeline, as it is in Redis."""

    pipeline_id: UUID
    minute: int
    seconds: dict[bytes, bytes]


def _write(counted: Sequence[_Counted]) -> None:
    rows = [
        CountMinute(
            pipeline_id=one.pipeline_id,
            minute=datetime.fromtimestamp(one.minute * 60, UTC),
            counts=_by_event(one.seconds),
        )
        for one in counted
    ]
    CountMinute.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=["pipeline_id", "minute"], update_fields=["counts"]
    )


def _set_aside(counted: _Counted, error: Exception) -> None:
    entry_quarantine(
        sink="count_history",
        stream=keys.by_second(str(counted.pipeline_id), counted.minute),
        entry_id=str(counted.minute).encode(),
        fields=counted.seconds,
        error=error,
    )


def _by_event(seconds: dict[bytes, bytes]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for name, n in seconds.items():
        counts[name.decode().rpartition("|")[0]] += int(n)
    return dict(counts)
