"""Reads a topic without joining a consumer group or committing offsets."""

import time
import uuid
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from backend.settings import KafkaSettings

_SECONDS = 10.0
_SILENCE_SECONDS = 5.0
_BATCH = 1000
_LEADER_SECONDS = 0.1
_WITHOUT_LEADER = {KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION}
"""For a moment, of a topic that was just created or whose broker has died."""


class TopicScan:
    """Reads the committed records of a topic that exists, from the ``last`` offsets of each partition on, or all. Used
    by one thread at a time. Its methods raise KafkaException."""

    def __init__(self, kafka: KafkaSettings, topic: str, *, last: int | None = None) -> None:
        self._consumer = Consumer(
            {
                **kafka.client(),
                "group.id": f"headrace-scan-{uuid.uuid4()}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "queued.max.messages.kbytes": 16 * 1024,
            }
        )
        self.starts: dict[int, int] = {}
        """The offset of each partition from which it reads on."""
        self._unread: dict[int, int] = {}
        """Where the partitions ended that have not been read so far."""
        try:
            metadata = self._consumer.list_topics(topic, timeout=_SECONDS).topics[topic]
            if metadata.error is not None:
                raise KafkaException(metadata.error)
            for partition in metadata.partitions:
                low, high = self._bounds(topic, partition)
                self.starts[partition] = low if last is None else max(low, high - last)
                if self.starts[partition] < high:
                    self._unread[partition] = high
            self._consumer.assign([TopicPartition(topic, *start) for start in self.starts.items()])
        except Exception:
            self._consumer.close()
            raise

    @property
    def caught_up(self) -> bool:
        """Whether everything was read that was there when it began."""
        return not self._unread

    def records(self, limit: int, seconds: float) -> list[Message]:
        """Up to ``limit`` records, as soon as there are any; none after ``seconds``, or when the end was reached."""
        first = self._consumer.poll(seconds)
        if first is None:
            return []
        records = []
        for record in [first, *self._consumer.consume(limit - 1, 0)]:
            error, partition, offset = record.error(), record.partition() or 0, record.offset() or 0
            if error is None:
                records.append(record)
                offset += 1
            elif error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            if offset >= self._unread.get(partition, offset + 1):
                del self._unread[partition]
        return records

    def until_caught_up(self) -> Iterator[list[Message]]:
        """The records that were there when it began, in batches."""
        progress = time.monotonic()
        while not self.caught_up:
            unread = dict(self._unread)
            if records := self.records(_BATCH, 1.0):
                yield records
            if records or unread != self._unread:
                progress = time.monotonic()
            elif time.monotonic() - progress > _SILENCE_SECONDS:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "Kafka does not answer"))

    def close(self) -> None:
        self._consumer.close()

    def _bounds(self, topic: str, partition: int) -> tuple[int, int]:
        deadline = time.monotonic() + _SECONDS
        while True:
            try:
                bounds: tuple[int, int] | None = self._consumer.get_watermark_offsets(
                    TopicPartition(topic, partition), timeout=_SECONDS
                )
            except KafkaException as error:
                if error.args[0].code() not in _WITHOUT_LEADER or time.monotonic() > deadline:
                    raise
                time.sleep(_LEADER_SECONDS)
                continue
            if bounds is None:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "Kafka does not answer"))
            return bounds
