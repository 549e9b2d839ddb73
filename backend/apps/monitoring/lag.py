"""How far each stage is behind, in messages."""

from functools import lru_cache
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from backend.apps.jobs.selectors import adapting_offsets
from backend.domain import routing
from backend.environment import environment

_SECONDS = 5.0

READERS = {
    "adapting_transformer": routing.TRANSFORMER,
    "adapting_slow": routing.TRANSFORMER_SLOW,
    "filtering": routing.FILTER,
    "syndicating": routing.ADAPTED,
    "dead-letters": routing.DEAD_LETTER,
    "attempts": routing.ATTEMPTS,
    "usage": routing.BILLING,
}
"""The stages and workers that are Kafka consumer groups, ``headrace-NAME``, and what each reads."""


@lru_cache
def _admin() -> AdminClient:
    return AdminClient({"bootstrap.servers": environment().kafka_bootstrap_servers, "log_level": 0})


def stage_lags() -> dict[str, int]:
    """Messages that wait before each stage; a stage that has never run is missing. Raises KafkaException."""
    topics = {routing.INPUT, *READERS.values()}
    ends = _ends(topics)
    lags = {}
    for name, topic in READERS.items():
        parts = [part for part in ends if part[0] == topic]
        done = _committed(f"headrace-{name}", parts) if parts else {}
        if done:
            lags[name] = sum(max(0, end - done.get(part, 0)) for part, end in ends.items() if part[0] == topic)
    read = adapting_offsets()
    if read:
        lags["adapting"] = sum(
            max(0, end - read.get(part, 0)) for (topic, part), end in ends.items() if topic == routing.INPUT
        )
    return lags


def _ends(topics: set[str]) -> dict[tuple[str, int], int]:
    known = _admin().list_topics(timeout=_SECONDS).topics
    wanted: dict[TopicPartition, Any] = {
        TopicPartition(topic, part): OffsetSpec.latest()  # type: ignore[no-untyped-call]
        for topic in topics & known.keys()
        for part in known[topic].partitions
    }
    found = _admin().list_offsets(wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_SECONDS)
    return {(part.topic, part.partition): future.result().offset for part, future in found.items()}


def _committed(group: str, parts: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(*part) for part in parts])
    try:
        found = _admin().list_consumer_group_offsets([wanted], request_timeout=_SECONDS)[group].result()
    except KafkaException:
        return {}  # the group has never existed
    return {(part.topic, part.partition): part.offset for part in found.topic_partitions or [] if part.offset >= 0}
