"""Counts and errors of one data-plane process, written to Redis once a second."""

import asyncio
import contextlib
import logging
import time
from collections import Counter, deque

from redis.exceptions import RedisError

from backend.domain import json
from backend.domain.message import utc_now
from backend.network.redis_client import async_redis_client
from backend.telemetry import events, keys

log = logging.getLogger(__name__)

_INTERVAL = 1.0
_ERRORS_PER_FLUSH = 200


class Recorder:
    """Counts in memory and flushes every second, so that the hot path never waits.

    While Redis is unavailable the counts are kept in memory.
    """

    def __init__(self, redis_url: str) -> None:
        self._redis = async_redis_client(redis_url)
        self._counts: Counter[tuple[str, str, int]] = Counter()
        self._errors: deque[tuple[str, bytes]] = deque(maxlen=_ERRORS_PER_FLUSH)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    def count(self, pipeline_id: str, event: str, n: int = 1) -> None:
        self._counts[pipeline_id, event, int(time.time())] += n

    def latency(self, pipeline_id: str, output: str, seconds: float) -> None:
        self.count(pipeline_id, events.latency(output, seconds))

    def error(self, pipeline_id: str, *, stage: str, reason: str, message: str, message_id: str) -> None:
        """Records an error for the pipeline's page. ``message`` must contain no secrets and no payload."""
        entry = {"at": utc_now(), "stage": stage, "reason": reason, "message": message, "message_id": message_id}
        self._errors.append((pipeline_id, json.dumps(entry)))

    async def close(self) -> None:
        """Stops the task and flushes what is still in memory."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
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
        batch = self._redis.pipeline(transaction=True)
        for (pipeline_id, event, second), n in counts.items():
            minute_key = keys.by_second(pipeline_id, second // 60)
            hour_key = keys.by_hour(pipeline_id, second // 3600)
            batch.hincrby(minute_key, f"{event}|{second}", n)
            batch.expire(minute_key, keys.SECONDS_KEPT)
            batch.hincrby(hour_key, event, n)
            batch.expire(hour_key, keys.HOURS_KEPT)
            batch.hincrby(keys.totals(pipeline_id), event, n)
        for pipeline_id, entry in errors:
            batch.lpush(keys.errors(pipeline_id), entry)
            batch.ltrim(keys.errors(pipeline_id), 0, keys.ERRORS_KEPT - 1)
        try:
            await batch.execute()
        except (RedisError, OSError) as error:
            log.warning("Live counts could not be written to Redis and will be retried: %s", error)
            self._counts.update(counts)
            self._errors.extendleft(reversed(errors))
