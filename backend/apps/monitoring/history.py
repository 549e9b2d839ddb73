"""Aggregates counts from Redis, which has them by second for two hours, into PostgreSQL by minute."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.db import DatabaseError, InterfaceError, close_old_connections, connection, transaction
from redis.exceptions import RedisError

from backend.apps.kafka_sink.faults import write_good
from backend.apps.kafka_sink.services import entry_quarantine
from backend.apps.monitoring.models import CountMinute
from backend.apps.monitoring.selectors import ask_backlog, backlog_in
from backend.apps.pipelines.models import Pipeline
from backend.apps.pipelines.selectors import published_outputs
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
    """Writes the minutes (Unix time / 60) from ``first`` to ``last``, the last one with what waits now, and sets aside
    what cannot be written. Safe to repeat."""
    client = redis_client()
    published = published_outputs(Pipeline.objects.all())
    for pipeline_id in Pipeline.objects.values_list("pk", flat=True):
        outputs = published.get(str(pipeline_id), {})
        with client.pipeline(transaction=False) as batch:
            for minute in range(first, last + 1):
                batch.hgetall(keys.by_second(str(pipeline_id), minute))
            ask_backlog(batch, str(pipeline_id), outputs)
            answers: list[Any] = batch.execute()
        hashes, hours = answers[: last - first + 1], answers[last - first + 1 :]
        waiting = _waiting(hours, outputs)
        counted = [
            _Counted(pipeline_id, minute, seconds, waiting if minute == last else None)
            for minute, seconds in zip(range(first, last + 1), hashes, strict=True)
            if seconds or (minute == last and waiting)
        ]
        write_good(counted, _write, _set_aside)


def _waiting(hours: list[Any], outputs: Iterable[str]) -> int | None:
    """None also if the counts cannot be read: those of the minute are written all the same."""
    try:
        return backlog_in(hours, outputs)
    except ValueError:
        return None


class _Counted(NamedTuple):
    """A minute of a pipeline, as it is in Redis."""

    pipeline_id: UUID
    minute: int
    seconds: dict[bytes, bytes]
    waiting: int | None


def _write(counted: Sequence[_Counted]) -> None:
    rows = [
        CountMinute(
            pipeline_id=one.pipeline_id,
            minute=datetime.fromtimestamp(one.minute * 60, UTC),
            counts=_by_event(one.seconds),
            waiting=one.waiting,
        )
        for one in counted
    ]
    # What waited is known at the time alone: a minute that is written again keeps it.
    known = [row for row in rows if row.waiting is not None]
    others = [row for row in rows if row.waiting is None]
    with transaction.atomic():
        for some, fields in ((known, ["counts", "waiting"]), (others, ["counts"])):
            CountMinute.objects.bulk_create(
                some, update_conflicts=True, unique_fields=["pipeline_id", "minute"], update_fields=fields
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
