"""What waits at the ends of topics: the last offsets there may be those of markers of transactions, which are no
records (KIP-98), so that a reader that has read everything is still some offsets behind."""

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cachetools import LRUCache
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

MOST_MARKERS = 16
"""The markers of ended transactions that may follow the last record that was read."""
_POLL_SECONDS = 0.1
_MOST_KNOWN = 1000


class Span(NamedTuple):
    """From one offset of a partition to another."""

    topic: str
    partition: int
    begin: int
    end: int


class Tails:
    """Counts records by reading them, once for the same offsets. Safe to be shared by threads."""

    def __init__(self, kafka: Mapping[str, Any], name: str) -> None:
        """``kafka`` is the configuration of a client, which is called by this name."""
        config = {
            "group.id": name,  # it is never joined
            "client.id": name,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 10,
            "queued.max.messages.kbytes": 1024,
            "fetch.message.max.bytes": 1024 * 1024,
        }
        self._consumer = Consumer({**kafka, **config})
        self._lock = threading.Lock()
        self._known: LRUCache[Span, int] = LRUCache(_MOST_KNOWN)

    def waiting(self, spans: Sequence[Span], seconds: float) -> int:
        """How many records there are in spans of different partitions. Of those that are longer than MOST_MARKERS,
        or that the brokers do not answer for in time, all offsets count. Raises KafkaException."""
        with self._lock:
            unknown = [one for one in spans if 0 < one.end - one.begin <= MOST_MARKERS and one not in self._known]
            if unknown:
                self._known.update(self._read({one[:2]: one for one in unknown}, seconds))
            return sum(self._known.get(one, max(0, one.end - one.begin)) for one in spans)

    def _read(self, spans: Mapping[tuple[str, int], Span], seconds: float) -> dict[Span, int]:
        """The numbers of records of those spans whose ends were reached."""
        until = time.monotonic() + seconds
        counts = dict.fromkeys(spans, 0)
        read: dict[Span, int] = {}
        self._consumer.assign([TopicPartition(one.topic, one.partition, one.begin) for one in spans.values()])
        try:
            while len(read) < len(spans) and time.monotonic() < until:
                for record in self._consumer.consume(MOST_MARKERS, _POLL_SECONDS):
                    error, part = record.error(), (str(record.topic()), int(record.partition() or 0))
                    if error is not None and error.code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(error)
                    if error is not None or (record.offset() or 0) >= spans[part].end:
                        read.setdefault(spans[part], counts[part])
                    else:
                        counts[part] += 1
        finally:
            self._consumer.unassign()
        return read

    def close(self) -> None:
        """Ends the connections."""
        self._consumer.close()
