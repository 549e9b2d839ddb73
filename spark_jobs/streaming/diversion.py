"""Decides which messages go through the slow lane, so that the order of each key is kept.

Once a message of a pipeline was sent there, the pipeline's later messages of the same partition follow it until the
slow lane has caught up: both topics have the same partitions. What the partition's previous owner sent there is
unknown, so after an assignment the slow lane has to catch up as well.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from spark_jobs.streaming.lane import Position

log = logging.getLogger(__name__)

_CHECK_SECONDS = 1.0
_ANSWER_SECONDS = 5.0


class Diversion:
    """Created, used and closed on one event loop. ``committed`` as in LaneServices."""

    def __init__(self, bootstrap_servers: str, *, topic: str, group: str, committed: Callable[[int], int]) -> None:
        # It never joins the group: it only reads the group's committed offsets and whether records follow them.
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_uncommitted",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
                "fetch.message.max.bytes": 64 * 1024,
                "queued.max.messages.kbytes": 256,
            }
        )
        self._topic = topic
        self._committed = committed
        self._last: dict[tuple[int, str], int] = {}
        """The newest diverted message, by partition and pipeline: its offset here."""
        self._unknown: dict[int, asyncio.Event] = {}
        self._behind: set[int] = set()
        self._wake = asyncio.Event()
        self._task = asyncio.create_task(self._check_forever())

    def assigned(self, partition: int) -> None:
        self._last = {key: offset for key, offset in self._last.items() if key[0] != partition}
        self._behind.add(partition)
        self._unknown[partition] = asyncio.Event()
        self._wake.set()

    async def known(self, position: Position) -> None:
        """Waits until it is known whether the slow lane still has messages of the partition."""
        unknown = self._unknown.get(position.partition)
        if unknown is not None:
            await unknown.wait()

    def follows(self, pipeline_id: str, position: Position, *, waits: bool = False) -> bool:
        """Whether a message has to follow others into the slow lane. ``waits`` says that its steps
        may wait, so that the partition's previous owner may have sent the pipeline's messages there."""
        if waits and position.partition in self._behind:
            return True
        return bool(self._last) and (position.partition, pipeline_id) in self._last

    def divert(self, pipeline_id: str, position: Position) -> None:
        """Notes that the message goes through the slow lane."""
        key = (position.partition, pipeline_id)
        self._last[key] = max(position.offset, self._last.get(key, 0))
        self._wake.set()

    async def close(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        await asyncio.to_thread(self._consumer.close)

    async def _check_forever(self) -> None:
        while True:
            await self._wake.wait()
            if not self._last and not self._behind:
                self._wake.clear()
                continue
            try:
                await self._check()
            except KafkaException as error:
                log.warning("The slow lane's progress cannot be determined: %s", error.args[0].str())
            await asyncio.sleep(_CHECK_SECONDS)

    async def _check(self) -> None:
        partitions = {partition for partition, _ in self._last} | self._behind
        # The check below only covers messages that were produced before it.
        produced = {key: offset for key, offset in self._last.items() if offset < self._committed(key[0])}
        caught_up = await asyncio.to_thread(self._caught_up, partitions)
        for partition in partitions:
            if partition in caught_up:
                self._behind.discard(partition)
            known = self._unknown.pop(partition, None)
            if known is not None:
                known.set()
        for key, offset in produced.items():
            if key[0] in caught_up and self._last.get(key) == offset:
                del self._last[key]

    def _caught_up(self, partitions: set[int]) -> set[int]:
        """The partitions of which the slow lane has no messages left. Only reading shows whether records follow the
        committed offset: transaction markers move the end offset as well. Raises KafkaException."""
        requested = [TopicPartition(self._topic, partition) for partition in partitions]
        starts = self._consumer.committed(requested, _ANSWER_SECONDS)
        for start in starts:
            start.offset = max(0, start.offset)
        self._consumer.assign(starts)
        empty: set[int] = set()
        left = set(partitions)
        while left:
            record = self._consumer.poll(_ANSWER_SECONDS)
            if record is None:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "Kafka does not answer"))
            error = record.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            if error is not None and record.partition() in left:
                empty.add(record.partition())  # type: ignore[arg-type]
            left.discard(record.partition())  # type: ignore[arg-type]
        self._consumer.unassign()
        return empty
