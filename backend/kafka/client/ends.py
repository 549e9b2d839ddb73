"""First and end offsets of topics."""

from collections.abc import Iterable
from typing import Any

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from backend.kafka.client.waiting import MOST_MARKERS

_SECONDS = 5.0


def end_offsets(
    admin: AdminClient, topics: Iterable[str], isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
) -> dict[tuple[str, int], int]:
    """The offset after the last record that is committed, or after the last of all, by topic and partition. Topics that
    do not exist are left out.

    Raises KafkaException.
    """
    return _offsets(admin, topics, OffsetSpec.latest(), isolation)  # type: ignore[no-untyped-call]


def first_offsets(admin: AdminClient, topics: Iterable[str]) -> dict[tuple[str, int], int]:
    """The offset of the first record that is left, likewise."""
    return _offsets(admin, topics, OffsetSpec.earliest(), IsolationLevel.READ_COMMITTED)  # type: ignore[no-untyped-call]


def is_loss(position: int, first: int) -> bool:
    """Whether a reader at ``position`` has missed records, since the partition begins at ``first``."""
    return 0 <= position < first - MOST_MARKERS


def _offsets(
    admin: AdminClient, topics: Iterable[str], spec: Any, isolation: IsolationLevel
) -> dict[tuple[str, int], int]:
    metadata = admin.list_topics(timeout=_SECONDS).topics
    specs = {
        TopicPartition(topic, part): spec
        for topic in topics
        if topic in metadata
        for part in metadata[topic].partitions
    }
    futures = admin.list_offsets(specs, isolation_level=isolation, request_timeout=_SECONDS)
    return {(part.topic, part.partition): future.result().offset for part, future in futures.items()}
