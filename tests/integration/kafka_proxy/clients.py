"""Actions of tests as clients of a cluster or its proxies."""

import uuid
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration import received as common
from tests.kafka_cluster import KafkaCluster
from tests.waiting import LIMIT_SECONDS, wait_until

MESSAGES = 2000
PARTITIONS = 6


@cache
def administrator(bootstrap: str) -> AdminClient:
    """The same for all tests: a new client may need a second until it knows the cluster."""
    return AdminClient({"bootstrap.servers": bootstrap})


def make_topic(cluster: KafkaCluster, partitions: int = PARTITIONS, prefix: str = "t", **config: str) -> str:
    name = f"{prefix}-{uuid.uuid4().hex[:12]}"
    admin = administrator(cluster.bootstrap())
    admin.create_topics([NewTopic(name, partitions, 3, config=config)])[name].result(LIMIT_SECONDS)
    wait_until_known(cluster, name, partitions)
    return name


def wait_until_known(cluster: KafkaCluster, topic: str, partitions: int) -> None:
    """Waits until every broker reports this many partitions, since brokers may lag behind each other."""
    for broker in cluster.brokers:
        admin = AdminClient({"bootstrap.servers": broker.address()})  # a new one asks this broker, and no other
        wait_until(lambda admin=admin: _partitions(admin, topic) == partitions)


def _partitions(admin: AdminClient, topic: str) -> int:
    metadata = admin.list_topics(timeout=LIMIT_SECONDS).topics.get(topic)
    return len(metadata.partitions) if metadata is not None else 0


def send(bootstrap: str, topic: str, values: list[bytes], **config: Any) -> None:
    failed: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, **config})
    for value in values:
        producer.produce(topic, value, key=value[:8], on_delivery=lambda error, _: error and failed.append(error))
    assert producer.flush(LIMIT_SECONDS) == 0
    assert not failed, failed[0]


def received(bootstrap: str, topic: str, count: int, seconds: float = LIMIT_SECONDS, **config: Any) -> Counter[bytes]:
    """The values that a consumer group reads until it has this many, and for half a second longer."""
    settings = {"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings | config)
    consumer.subscribe([topic])
    try:
        return common.received(consumer, count, seconds)
    finally:
        consumer.close()


def values(count: int = MESSAGES) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def retried(work: Callable[[], object]) -> None:
    """Retries a transaction's call while its errors are retriable, as librdkafka requires of applications."""
    for remaining in reversed(range(20)):
        try:
            work()
            return
        except KafkaException as error:
            if not remaining or not error.args[0].retriable():
                raise
