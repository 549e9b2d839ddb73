"""Creates topics, and compares those that exist with what they should be."""

import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from backend.domain import limits
from backend.settings import ConsoleSettings

_SECONDS = 30.0
_LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class Topic:
    """What a topic should be. ``config`` has Kafka's topic settings."""

    name: str
    partitions: int
    replication: int
    config: dict[str, str] = field(default_factory=dict)


def own_topic(name: str, settings: ConsoleSettings) -> Topic:
    """One of Headrace's own topics, as the settings say."""
    config = {
        "retention.ms": str(settings.topic_retention_hours * 3600 * 1000),
        "max.message.bytes": str(limits.TOPIC_BYTES),
    }
    if settings.topic_min_insync_replicas:
        config["min.insync.replicas"] = str(settings.topic_min_insync_replicas)
    return Topic(name, settings.topic_partitions, settings.topic_replication, config)


def topic_create(admin: AdminClient, topic: Topic, seconds: float = _SECONDS) -> bool:
    """Whether it did not exist. Raises KafkaException."""
    new = NewTopic(
        topic.name, num_partitions=topic.partitions, replication_factor=topic.replication, config=topic.config
    )
    try:
        admin.create_topics([new], request_timeout=seconds)[topic.name].result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        raise
    return True


def partitions_of(admin: AdminClient, topic: str, seconds: float) -> int:
    """How many partitions the topic has. Raises KafkaException, also when there is no such topic."""
    described = admin.list_topics(topic, timeout=seconds).topics[topic]
    if described.error is not None:
        raise KafkaException(described.error)
    return len(described.partitions)


def topics_reconcile(admin: AdminClient, topics: Iterable[Topic]) -> list[str]:
    """Creates the topics that are missing, and gives the others the config that they should have. Returns a sentence
    about everything that has to be changed by the operator. Raises KafkaException."""
    existing = [topic for topic in topics if not topic_create(admin, topic)]
    metadata = admin.list_topics(timeout=_SECONDS).topics
    problems = []
    for topic in existing:
        partitions = metadata[topic.name].partitions
        copies = min((len(partition.replicas) for partition in partitions.values()), default=0)
        if len(partitions) < topic.partitions:
            problems.append(
                f"Topic {topic.name} has {len(partitions)} partition(s), and HEADRACE_TOPIC_PARTITIONS asks for "
                f"{topic.partitions}. Stop the inputs, let everything be delivered, and add partitions with Kafka's "
                "own tools: the order of a key does not hold across the change."
            )
        if copies < topic.replication:
            problems.append(
                f"Topic {topic.name} has {copies} replica(s), and HEADRACE_TOPIC_REPLICATION asks for "
                f"{topic.replication}. Reassign its partitions with Kafka's own tools."
            )
        problems += _apply_config(admin, topic)
    return problems


def _apply_config(admin: AdminClient, topic: Topic) -> Iterator[str]:
    resource = ConfigResource(ResourceType.TOPIC, topic.name)
    current = admin.describe_configs([resource], request_timeout=_SECONDS)[resource].result()
    changes = {name: value for name, value in topic.config.items() if current[name].value != value}
    if not changes:
        return
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in changes.items()]
    change = ConfigResource(ResourceType.TOPIC, topic.name, incremental_configs=entries)
    try:
        admin.incremental_alter_configs([change], request_timeout=_SECONDS)[change].result()
    except KafkaException as error:
        shown = ", ".join(f"{name}={value}" for name, value in changes.items())
        yield f"Topic {topic.name} should have {shown}, which could not be changed: {error.args[0].str()}."


def topic_ids(admin: AdminClient, names: Collection[str]) -> dict[str, str]:
    """The id that Kafka gave each topic when it was created. Waits for topics that are new to the brokers. Raises
    KafkaException."""
    deadline = time.monotonic() + _SECONDS
    while True:
        described = admin.describe_topics(TopicCollection(list(names)), request_timeout=_SECONDS)
        try:
            return {name: str(future.result().topic_id) for name, future in described.items()}
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART or time.monotonic() > deadline:
                raise
        time.sleep(_LOOK_SECONDS)
