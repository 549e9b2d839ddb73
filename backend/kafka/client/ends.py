"""End offsets of topics."""

from typing import Any

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

_SECONDS = 5.0


def end_offsets(admin: AdminClient, topics: set[str]) -> dict[tuple[str, int], int]:
    """The offset after the last committed record, by topic and partition. Topics that do not exist are left out.

    Raises KafkaException.
    """
    metadata = admin.list_topics(timeout=_SECONDS).topics
    specs: dict[TopicPartition, Any] = {
        TopicPartition(topic, part): OffsetSpec.latest()  # type: ignore[no-untyped-call]
        for topic in topics & metadata.keys()
        for part in metadata[topic].partitions
    }
    futures = admin.list_offsets(specs, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_SECONDS)
    return {(part.topic, part.partition): future.result().offset for part, future in futures.items()}
