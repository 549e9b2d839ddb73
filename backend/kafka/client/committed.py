"""The committed offsets of consumer groups."""

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, TopicPartition


class CommittedOffsets:
    """Asks for them without joining a group. Safe to be shared by threads.

    The admin client's request for them ends the whole process when its answer comes after the timeout (librdkafka 2.9:
    an assertion in ``rd_kafka_enq_once_del_source_return``), so a consumer of each group asks. It is kept, since a new
    one has to connect first.
    """

    def __init__(self, kafka: Mapping[str, Any]) -> None:
        """``kafka`` is the configuration of a client."""
        self._kafka = {**kafka, "enable.auto.commit": False, "isolation.level": "read_committed"}
        self._consumers: dict[str, Consumer] = {}
        self._creating = threading.Lock()

    def of(self, group: str, parts: Iterable[tuple[str, int]], seconds: float) -> list[TopicPartition]:
        """The group's offsets with their metadata, once no transaction that changes them is open; partitions without
        one are left out. Raises KafkaException, at the latest after ``seconds``."""
        answer = self._consumer(group).committed([TopicPartition(*part) for part in parts], timeout=seconds)
        return [part for part in answer if part.offset >= 0]

    def close(self) -> None:
        """Ends the connections."""
        for consumer in self._consumers.values():
            consumer.close()
        self._consumers.clear()

    def _consumer(self, group: str) -> Consumer:
        with self._creating:
            if group not in self._consumers:
                self._consumers[group] = Consumer({**self._kafka, "group.id": group})
            return self._consumers[group]
