"""Which pipelines have unfinished messages in a lane's topic, read from the topic and the lane's committed offsets."""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Collection

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaRecord

from backend.domain import message as names
from backend.settings import KafkaSettings
from spark_jobs.streaming.window import Progress

log = logging.getLogger(__name__)

_ANSWER_SECONDS = 5.0
_ROUND_SECONDS = 1.0
_ROUND_RECORDS = 1000
_LOOK_SECONDS = 1.0


class Backlog:
    """The messages of one partition that may not be finished, by pipeline, as far as they were read."""

    def __init__(self) -> None:
        self.next: int | None = None
        """The offset to read on from; None before the first reading."""
        self.complete = asyncio.Event()
        """Whether the partition has been read to its end once."""
        self.created = time.monotonic()
        self._offsets: dict[str, deque[int]] = {}

    def add(self, pipeline_id: str, offset: int) -> None:
        self._offsets.setdefault(pipeline_id, deque()).append(offset)

    def finish(self, progress: Progress) -> None:
        """Forgets what the lane has committed."""
        still_open = set(progress.open)
        for pipeline_id, offsets in list(self._offsets.items()):
            while offsets and offsets[0] < progress.end and offsets[0] not in still_open:
                offsets.popleft()
            if not offsets:
                del self._offsets[pipeline_id]

    def __contains__(self, pipeline_id: str) -> bool:
        return pipeline_id in self._offsets

    def has_other(self, pipeline_id: str) -> bool:
        """Whether any other pipeline has messages."""
        return len(self._offsets) > (pipeline_id in self._offsets)

    @property
    def is_empty(self) -> bool:
        return not self._offsets


class BacklogReader:
    """Reads a lane's topic. Safe to be shared by threads."""

    def __init__(self, kafka: KafkaSettings, topic: str, group: str) -> None:
        """``group`` is the lane's. The reader never joins it: it only reads the group's committed offsets and the
        records after them."""
        self._topic = topic
        self._in_use = threading.Lock()
        """A cancelled task does not end its thread, and closing a client that a thread reads from ends the process."""
        self._consumer = Consumer(
            {
                **kafka.client(),
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                # An open transaction elsewhere must not hide what this task has committed.
                "isolation.level": "read_uncommitted",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
                "queued.max.messages.kbytes": 4 * 1024,
            }
        )

    def close(self) -> None:
        """Once nothing is being read any more."""
        with self._in_use:
            self._consumer.close()

    def read(self, backlogs: dict[int, Backlog]) -> set[int]:
        """Reads on, for about a second, and forgets what the lane has finished. Returns the partitions that were read
        to their end. Raises KafkaException."""
        with self._in_use:
            return self._read_on(backlogs)

    def _read_on(self, backlogs: dict[int, Backlog]) -> set[int]:
        requested = [TopicPartition(self._topic, partition) for partition in backlogs]
        committed = {
            tp.partition: Progress.of(max(0, tp.offset), tp.metadata)
            for tp in self._consumer.committed(requested, _ANSWER_SECONDS)
        }
        starts = []
        for number, backlog in backlogs.items():
            start = backlog.next if backlog.next is not None else committed[number].offset
            starts.append(TopicPartition(self._topic, number, start))
        self._consumer.assign(starts)
        read: set[int] = set()
        deadline = time.monotonic() + _ROUND_SECONDS
        while len(read) < len(backlogs) and time.monotonic() < deadline:
            first = self._consumer.poll(_ANSWER_SECONDS)
            if first is None:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "Kafka does not answer"))
            for record in [first, *self._consumer.consume(_ROUND_RECORDS, 0)]:
                partition = self._note(record, backlogs)
                if partition is not None:
                    read.add(partition)
        self._consumer.unassign()
        for number, backlog in backlogs.items():
            backlog.finish(committed[number])
        return read

    @staticmethod
    def _note(record: KafkaRecord, backlogs: dict[int, Backlog]) -> int | None:
        """The partition, if this is its end. Raises KafkaException."""
        partition: int = record.partition()  # type: ignore[assignment]
        offset: int = record.offset()  # type: ignore[assignment]
        error = record.error()
        if error is None:
            headers: list[tuple[str, bytes | None]] = record.headers() or []  # type: ignore[assignment]
            pipeline_id = next((value or b"" for name, value in headers if name == names.PIPELINE), b"")
            backlogs[partition].add(pipeline_id.decode(errors="replace"), offset)
            backlogs[partition].next = offset + 1
        elif error.code() == KafkaError._PARTITION_EOF:
            backlogs[partition].next = max(offset, backlogs[partition].next or 0)
            return partition
        else:
            raise KafkaException(error)
        return None


class OthersBehind:
    """Whether further pipelines have messages in the topic behind those of one that fills a lane's window alone. Used
    and closed on one event loop."""

    def __init__(self, reader: BacklogReader) -> None:
        self._reader = reader
        self._backlogs: dict[int, Backlog] = {}
        self._reading: asyncio.Task[None] | None = None

    def wait_behind(self, pipeline_id: str, partitions: Collection[int]) -> bool:
        """As far as it is known; reads on in the background."""
        self._backlogs = {partition: self._backlogs.get(partition) or Backlog() for partition in partitions}
        if partitions and (self._reading is None or self._reading.done()):
            self._reading = asyncio.create_task(self._read(dict(self._backlogs)))
        return any(backlog.has_other(pipeline_id) for backlog in self._backlogs.values())

    async def close(self) -> None:
        if self._reading is not None:
            await self._reading
        await asyncio.to_thread(self._reader.close)

    async def _read(self, backlogs: dict[int, Backlog]) -> None:
        try:
            read = await asyncio.to_thread(self._reader.read, backlogs)
        except KafkaException as error:
            log.warning("Who waits in the topic cannot be determined: %s", error.args[0].str())
            read = set(backlogs)
        if len(read) == len(backlogs):  # there is nothing more to read now
            await asyncio.sleep(_LOOK_SECONDS)
