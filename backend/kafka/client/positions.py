"""Where readers of topics stand."""

from collections.abc import Iterable, Mapping

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from backend.kafka.client.committed import CommittedOffsets
from backend.kafka.client.ends import end_offsets
from backend.settings import KafkaSettings

_SECONDS = 5.0

Part = tuple[str, int]
"""A topic and the number of a partition."""


class Positions:
    """Compares readers' positions with the ends of topics. Its methods raise KafkaException."""

    def __init__(self, kafka: KafkaSettings) -> None:
        client = {**kafka.client(), "reconnect.backoff.max.ms": 1000, "log_level": 0}
        self._admin = AdminClient(client)
        self._committed = CommittedOffsets(client)
        self._read: dict[Part, tuple[int, int]] = {}
        """A position and an end between which nothing is left; finding that out takes up to half a second."""
        self._consumer = Consumer(
            {
                **client,
                "group.id": "headrace-positions",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                # One record tells all.
                "fetch.message.max.bytes": 1024,
                "queued.min.messages": 1,
            }
        )

    def ends(self, topics: Iterable[str]) -> dict[Part, int]:
        """The offset after the last record of each partition, records of open transactions included."""
        return end_offsets(self._admin, topics, IsolationLevel.READ_UNCOMMITTED)

    def committed(self, group: str, parts: Iterable[Part]) -> dict[Part, int]:
        """The group's committed offsets; partitions without one are left out."""
        answer = self._committed.of(group, parts, _SECONDS)
        return {(part.topic, part.partition): part.offset for part in answer}

    def passed(self, positions: Mapping[Part, int], ends: Mapping[Part, int]) -> bool:
        """Whether a reader at these positions has read every record before the ends."""
        return all(self.is_read(part, positions.get(part, 0), end) for part, end in ends.items())

    def is_read(self, part: Part, position: int, end: int) -> bool | None:
        """Whether no record is left from the position up to the end; None when Kafka does not say it in time.

        A position may be before the end although nothing is left: transactions end with a record of their own, which
        readers never see."""
        if position >= end or self._read.get(part) == (position, end):
            return True
        self._consumer.assign([TopicPartition(*part, position)])
        try:
            record = self._consumer.poll(_SECONDS)
        finally:
            self._consumer.unassign()
        if record is None:
            return None
        error = record.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        is_read = (record.offset() or 0) >= end
        if is_read:
            self._read[part] = (position, end)
        return is_read

    def close(self) -> None:
        self._consumer.close()
        self._committed.close()
