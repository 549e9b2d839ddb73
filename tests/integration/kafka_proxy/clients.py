"""What tests do as clients of a cluster or its proxies."""

import time
import uuid
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kafka_cluster import KafkaCluster
from tests.waiting import wait_until

MESSAGES = 2000
PARTITIONS = 6


@cache
def administrator(bootstrap: str) -> AdminClient:
    """The same for all tests: a new client may need a second until it knows the cluster."""
    return AdminClient({"bootstrap.servers": bootstrap})


def make_topic(cluster: KafkaCluster, partitions: int = PARTITIONS, prefix: str = "t", **config: str) -> str:
    name = f"{prefix}-{uuid.uuid4().hex[:12]}"
    admin = administrator(cluster.bootstrap())
    admin.create_topics([NewTopic(name, partitions, 3, config=config)])[name].result(30)
    wait_until_known(cluster, name, partitions)
    return name


def wait_until_known(cluster: KafkaCluster, topic: str, partitions: int) -> None:
    """Until every broker tells of so many partitions: the one asked next may lag behind the one asked last."""
    for broker in cluster.brokers:
        admin = AdminClient({"bootstrap.servers": broker.address()})  # a new one asks this broker, and no other
        wait_until(lambda admin=admin: _partitions(admin, topic) == partitions)


def _partitions(admin: AdminClient, topic: str) -> int:
    found = admin.list_topics(timeout=10).topics.get(topic)
    return len(found.partitions) if found is not None else 0


def send(bootstrap: str, topic: str, values: list[bytes], **config: Any) -> None:
    failed: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, **config})
    for value in values:
        producer.produce(topic, value, key=value[:8], on_delivery=lambda error, _: error and failed.append(error))
    assert producer.flush(30) == 0
    assert not failed, failed[0]


def received(bootstrap: str, topic: str, count: int, seconds: float = 40.0, **config: Any) -> Counter[bytes]:
    """What a consumer group reads until there are so many, and half a second longer."""
    settings = {"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings | config)
    consumer.subscribe([topic])
    found: Counter[bytes] = Counter()
    deadline = time.monotonic() + seconds
    try:
        while time.monotonic() < deadline:
            messages = consumer.consume(500, 0.5)
            if found.total() >= count and not messages:
                break
            for message in messages:
                assert message.error() is None or message.error().retriable(), message.error()
                if message.error() is None:
                    found[message.value()] += 1
    finally:
        consumer.close()
    return found


def values(count: int = MESSAGES) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def retried(work: Callable[[], object]) -> None:
    """As librdkafka asks of applications: a transaction's calls are repeated while their errors are retriable."""
    for left in reversed(range(20)):
        try:
            work()
            return
        except KafkaException as error:
            if not left or not error.args[0].retriable():
                raise
