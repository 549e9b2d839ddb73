"""Counts and errors of one data-plane process, written to Redis once a second."""

import asyncio
import itertools
import logging
import time
from collections import Counter, deque

from redis.exceptions import RedisError

from backend.domain import json
from backend.domain.message import utc_now
from backend.network import tasks
from backend.network.redis_client import async_redis_client
from backend.telemetry import events, keys

log = logging.getLogger(__name__)

_INTERVAL = 1.0
_ERRORS_PER_FLUSH = 200
_COUNTS_PER_BATCH = 2_000
_COUNTS_KEPT = 20_000
"""More than these, while Redis is unavailable, are kept by the minute, then by the hour, then as one."""

_Counts = Counter[tuple[str, str, int]]
"""By pipeline, event and second (Unix time)."""


class Recorder:
    """Counts in memory and flushes every second, so that the hot path never waits.

    While Redis is unavailable the counts are kept in memory: none is lost, only when it happened becomes less exact.
    """

    def __init__(self, redis_url: str) -> None:
        self._redis = async_redis_client(redis_url)
        self._counts: _Counts = Counter()
        self._errors: deque[tuple[str, bytes]] = deque(maxlen=_ERRORS_PER_FLUSH)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    def count(self, pipeline_id: str, event: str, n: int = 1) -> None:
        self._counts[pipeline_id, event, int(time.time())] += n

    def latency(self, pipeline_id: str, output: str, seconds: float, n: int = 1) -> None:
        """``n`` deliveries took that long."""
        self.count(pipeline_id, events.latency(output, seconds), n)

    def error(self, pipeline_id: str, *, stage: str, reason: str, message: str, message_id: str) -> None:
        """Records an error for the pipeline's page. ``message`` must contain no secrets and no payload."""
        entry = {"at": utc_now(), "stage": stage, "reason": reason, "message": message, "message_id": message_id}
        self._errors.append((pipeline_id, json.dumps(entry)))

    async def close(self) -> None:
        """Stops the task and flushes what is still in memory."""
        if self._task is not None:
            await tasks.cancel(self._task)
        await self._flush()
        await self._redis.aclose()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_INTERVAL)
            await self._flush()

    async def _flush(self) -> None:
        if not self._counts and not self._errors:
            return
        counts, self._counts = self._counts, Counter()
        errors = list(self._errors)
        self._errors.clear()
        try:
            while counts or errors:
                some = dict(itertools.islice(counts.items(), _COUNTS_PER_BATCH))
                await self._write(some, errors)
                for key in some:
                    del counts[key]
                errors = []
        except (RedisError, OSError) as error:
            log.warning("Live counts could not be written to Redis and will be retried: %s", error)
            self._counts.update(counts)
            self._counts = _bounded(self._counts)
            self._errors.extendleft(reversed(errors))

    async def _write(self, counts: dict[tuple[str, str, int], int], errors: list[tuple[str, bytes]]) -> None:
        batch = self._redis.pipeline(transaction=True)
        for (pipeline_id, event, second), n in counts.items():
            minute_key = keys.by_second(pipeline_id, second // 60)
            hour_key = keys.by_hour(pipeline_id, second // 3600)
            batch.hincrby(minute_key, f"{event}|{second}", n)
            batch.expire(minute_key, keys.SECONDS_KEPT)
            batch.hincrby(hour_key, event, n)
            batch.expire(hour_key, keys.HOURS_KEPT)
            batch.hincrby(keys.totals(pipeline_id), event, n)
            batch.expire(keys.totals(pipeline_id), keys.UNUSED_KEPT)
        for pipeline_id, entry in errors:
            batch.lpush(keys.errors(pipeline_id), entry)
            batch.ltrim(keys.errors(pipeline_id), 0, keys.ERRORS_KEPT - 1)
            batch.expire(keys.errors(pipeline_id), keys.UNUSED_KEPT)
        await batch.execute()


def _bounded(counts: _Counts) -> _Counts:
    """The same totals with as few times as are needed. What is left then grows with pipelines and events only."""
    for step in (60, 3600, None):
        if len(counts) <= _COUNTS_KEPT:
            break
        newest = max(second for _, _, second in counts)
        coarser: _Counts = Counter()
        for (pipeline_id, event, second), n in counts.items():
            coarser[pipeline_id, event, newest if step is None else second // step * step] += n
        counts = coarser
    return counts
