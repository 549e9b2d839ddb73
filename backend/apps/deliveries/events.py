"""Copies state changes of circuit breakers from the Redis stream into PostgreSQL."""

import json
import logging
import threading
from datetime import UTC, datetime
from typing import Any

from django.db import DatabaseError, InterfaceError, close_old_connections, connection
from redis.exceptions import RedisError

from backend.apps.deliveries.models import OutputEvent
from backend.apps.pipelines.models import Pipeline
from backend.network.redis_client import redis_client
from backend.resilience.scripts import EVENTS

log = logging.getLogger(__name__)

_BLOCK_MILLISECONDS = 500
_RETRY_SECONDS = 1.0


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
                OutputEvent.objects.bulk_create(map(_event, entries), ignore_conflicts=True)
                last = entries[-1][0].decode()
        except (RedisError, InterfaceError, DatabaseError) as error:
            log.warning("Breaker events are delayed: %s", str(error).splitlines()[0] if str(error) else error)
            connection.close()
            stop.wait(_RETRY_SECONDS)
    connection.close()


def _event(entry: tuple[bytes, dict[bytes, bytes]]) -> OutputEvent:
    stream_id, fields = entry
    pipeline_id, output = json.loads(fields[b"output"])
    until = float(fields[b"until"])
    return OutputEvent(
        workspace_id=Pipeline.objects.filter(pk=pipeline_id).values_list("workspace_id", flat=True).first(),
        pipeline_id=pipeline_id,
        output=output,
        at=datetime.fromtimestamp(int(stream_id.split(b"-")[0]) / 1000, UTC),
        state=fields[b"state"].decode(),
        until=datetime.fromtimestamp(until, UTC) if until else None,
        cause=fields[b"cause"].decode(errors="replace"),
        stream_id=stream_id.decode(),
    )
