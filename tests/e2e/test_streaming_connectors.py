"""Streaming connectors in a ring: Kafka to Redis to Pub/Sub to Kafka, through the whole installation."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from backend.domain import json
from backend.domain.message import new_message_id
from tests.infra import KAFKA, REDIS_PORT, Server
from tests.installation import Installation
from tests.integration.connectors.suites import DOCUMENTS
from tests.pubsub import CONNECTION, emulator_server, make_topic
from tests.waiting import LIMIT_SECONDS, wait_until


@pytest.fixture(scope="module")
def pubsub() -> Iterator[None]:
    server = emulator_server()
    server.start()
    yield
    server.stop()


_SILENT_SECONDS = 300
"""Spark starts again and the leases of its readers expire meanwhile, on a machine that other tests use as well."""


def read_from(topic: str) -> Iterator[bytes]:
    """Each call of ``next`` waits for a message; ``StopIteration`` after a while without."""
    consumer = Consumer({"bootstrap.servers": KAFKA, "group.id": new_message_id(), "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    with closing(consumer):
        while (record := consumer.poll(_SILENT_SECONDS)) is not None:
            assert record.error() is None, record.error()
            yield bytes(record.value() or b"")


@pytest.fixture(scope="module")
def ring(installation: Installation, kafka: Server, redis_server: Server, pubsub: None) -> tuple[str, str]:
    """The topics at both ends of three published pipelines."""
    name = new_message_id()
    first, last = f"{name}-first", f"{name}-last"
    admin = AdminClient({"bootstrap.servers": KAFKA})
    for created in admin.create_topics([NewTopic(first, 2, 1), NewTopic(last, 1, 1)]).values():
        created.result(LIMIT_SECONDS)
    topic, subscription = make_topic()
    kafka_connector = connector(installation, "kafka", {"bootstrap_servers": KAFKA})
    redis = connector(installation, "redis_stream", {"host": "127.0.0.1", "port": REDIS_PORT})
    google = connector(installation, "pubsub", CONNECTION)
    publish(installation, kafka_connector, {"topics": [first], "group": name}, redis, {"stream": name})
    read = {"stream": name, "group": "ring", "field": "body"}
    publish(installation, redis, read, google, {"topic": topic, "ordered": True}, batch={"messages": 20, "seconds": 1})
    publish(installation, google, {"subscription": subscription}, kafka_connector, {"topic": last})
    return first, last


def connector(installation: Installation, type: str, connection: dict[str, Any]) -> str:
    created = installation.create("connectors/", {"name": new_message_id(), "type": type, "connection": connection})
    _, answer = installation.api("POST", f"connectors/{created['id']}/test/", {})
    assert "onnected" in str(answer), answer
    return str(created["id"])


def publish(
    installation: Installation, source: str, read: dict[str, Any], target: str, write: dict[str, Any], **output: Any
) -> None:
    config = {
        "input": {"type": "connector", "connector": source, "options": read},
        "outputs": [{"name": "out", "connector": target, "options": write, **output}],
    }
    pipeline = installation.create("pipelines/", {"name": new_message_id(), "config": config})
    installation.create(f"pipelines/{pipeline['id']}/publish/", {})


def produce(topic: str, bodies: Iterable[bytes]) -> None:
    producer = Producer({"bootstrap.servers": KAFKA, "message.max.bytes": 2_000_000})
    for number, body in enumerate(bodies):
        producer.produce(topic, body, key=str(number % 7))
    assert producer.flush(LIMIT_SECONDS) == 0


@pytest.mark.long  # its short forms are the killed readers of each connector, in tests/integration/connectors
def test_every_document_arrives_as_it_was_sent_also_when_spark_is_killed(
    installation: Installation, ring: tuple[str, str]
) -> None:
    first, last = ring
    documents = {json.dumps(document) for document in DOCUMENTS}
    produce(first, documents)
    arriving = read_from(last)
    received: set[bytes] = set()
    while len(received) < len(documents):
        received.add(next(arriving))
    assert received == documents

    numbers = {b"%d" % number for number in range(3000)}
    produce(first, numbers)
    received = {next(arriving)}
    spark = installation.spark()
    assert spark is not None
    spark.kill()
    while not numbers <= received:
        received.add(next(arriving))
    assert received <= numbers | documents
    wait_until(lambda: installation.spark() is not None)
