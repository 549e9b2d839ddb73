"""Copies state changes of circuit breakers from the Redis stream into PostgreSQL."""

import json
import logging
import threading
from collections.abc import Sequence
from typing import Any

from django.db import DatabaseError, InterfaceError, close_old_connections, connection
from redis.exceptions import RedisError

from backend.apps.deliveries.models import OutputEvent
from backend.apps.kafka_sink.faults import moment_of, storable, write_good
from backend.apps.kafka_sink.services import entry_quarantine
from backend.apps.pipelines.models import Pipeline
from backend.network.redis_client import redis_client
from backend.resilience.scripts import EVENTS

log = logging.getLogger(__name__)

_BLOCK_MILLISECONDS = 500
_RETRY_SECONDS = 1.0

_Entry = tuple[bytes, dict[bytes, bytes]]


def run(stop: threading.Event) -> None:
    """Runs until ``stop`` is set."""
    client = redis_client()
    last: str | None = None
    while not stop.is_set():
        close_old_connections()
        try:
            if last is None:
                newest = OutputEvent.objects.order_by("-id").first()
                last = newest.stream_id if newest else "0"
            streams: Any = client.xread({EVENTS: last}, count=500, block=_BLOCK_MILLISECONDS)
            for _, entries in streams or []:
                write_good(entries, _write, _set_aside)
                last = entries[-1][0].decode()
        except (RedisError, InterfaceError, DatabaseError) as error:
            log.warning("Breaker events are delayed: %s", str(error).splitlines()[0] if str(error) else error)
            connection.close()
            stop.wait(_RETRY_SECONDS)
    connection.close()


def _write(entries: Sequence[_Entry]) -> None:
    OutputEvent.objects.bulk_create(map(_event, entries), ignore_conflicts=True)


def _set_aside(entry: _Entry, error: Exception) -> None:
    entry_id, fields = entry
    entry_quarantine(sink="events", stream=EVENTS, entry_id=entry_id, fields=fields, error=error)


def _event(entry: _Entry) -> OutputEvent:
    stream_id, fields = entry
    pipeline_id, output = json.loads(fields[b"output"])
    until = float(fields[b"until"])
    return OutputEvent(
        workspace_id=Pipeline.objects.filter(pk=pipeline_id).values_list("workspace_id", flat=True).first(),
        pipeline_id=pipeline_id,
        output=output,
        at=moment_of(int(stream_id.split(b"-")[0]) / 1000),
        state=fields[b"state"].decode(),
        until=moment_of(until) if until else None,
        cause=storable(fields[b"cause"].decode(errors="replace")),
        stream_id=stream_id.decode(),
    )
