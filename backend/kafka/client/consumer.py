"""An asyncio interface to librdkafka's consumer."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import Message as Record

_DEFAULTS: dict[str, Any] = {
    # Offsets are committed in the background, but only those that were stored.
    "enable.auto.commit": True,
    "auto.commit.interval.ms": 1000,
    "enable.auto.offset.store": False,
    # A reader that was killed gives its partitions to the next one after this time.
    "session.timeout.ms": 10_000,
    # A reader waits for as long as its records cannot be stored elsewhere, and keeps its partitions meanwhile.
    "max.poll.interval.ms": 3_600_000,
    # What is fetched in advance.
    "queued.max.messages.kbytes": 4096,
    "fetch.max.bytes": 4 * 1024 * 1024,
}
_POLL_SECONDS = 0.5
_CLOSE_SECONDS = 10.0

T = TypeVar("T")


class AsyncConsumer:
    """A member of a consumer group. What was not stored is read again by the group's next reader.

    All calls are made in one thread, one after the other: librdkafka's consumer must not be closed while it is read,
    and a cancelled call goes on until it returns.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self._consumer = Consumer({**_DEFAULTS, **config})
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kafka-consumer")
        self._closed = False
        self.polled_at = time.monotonic()
        """When records were last asked for, by the monotonic clock."""

    async def subscribe(
        self, topics: Sequence[str], on_assign: Callable[[Consumer, list[TopicPartition]], None]
    ) -> None:
        """``on_assign`` is called in the consumer's thread; what it raises is raised by ``records``."""
        await self._call(lambda: self._consumer.subscribe(list(topics), on_assign=on_assign))

    async def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Reads these partitions from their offsets on, without the group. Raises KafkaException."""
        await self._call(lambda: self._consumer.assign(list(partitions)))

    async def records(self, limit: int, seconds: float = _POLL_SECONDS) -> list[Record]:
        """Up to ``limit`` records, as soon as there are any; none after half a second, or so many. Raises
        KafkaException."""
        self.polled_at = time.monotonic()
        return await self._call(lambda: self._records(limit, seconds))

    async def store(self, offsets: Sequence[TopicPartition]) -> None:
        """Marks everything before these offsets as read. Partitions that were reassigned are left out: their records
        are read again by the group's member that has them now."""
        with contextlib.suppress(KafkaException):
            await self._call(lambda: self._consumer.store_offsets(offsets=list(offsets)))

    async def list_topics(self, timeout: float) -> Any:
        """The cluster's metadata. Raises KafkaException."""
        return await self._call(lambda: self._consumer.list_topics(timeout=timeout))

    async def lag(self) -> int | None:
        """Records of the assigned partitions that were not yet returned; None before the brokers have told the end of
        each. Raises KafkaException."""
        return await self._call(self._lag)

    async def close(self) -> None:
        """Commits what was stored and leaves the group, so that the next reader need not wait."""
        closing = asyncio.ensure_future(self._call(self._consumer.close))
        await asyncio.sleep(0)  # it is in the thread's queue before other calls are refused
        self._closed = True
        await asyncio.wait([closing], timeout=_CLOSE_SECONDS)
        self._thread.shutdown(wait=False)

    def _records(self, limit: int, seconds: float) -> list[Record]:
        first = self._consumer.poll(seconds)
        if first is None:
            return []
        records = [first, *self._consumer.consume(limit - 1, 0)]
        for record in records:
            if (error := record.error()) is not None:
                raise KafkaException(error)
        return records

    def _lag(self) -> int | None:
        assigned = self._consumer.assignment()
        lags = []
        for begin, position in zip(assigned, self._consumer.position(assigned), strict=True):
            # A partition has no position before its first record was returned.
            offset = position.offset if position.offset >= 0 else begin.offset
            _, end = self._consumer.get_watermark_offsets(position, cached=True)
            if offset < 0 or end < 0:
                return None
            lags.append(max(0, end - offset))
        return sum(lags) if lags else None

    async def _call(self, function: Callable[[], T]) -> T:
        if self._closed:  # some of librdkafka's functions crash then
            raise RuntimeError("The consumer is closed.")
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)
