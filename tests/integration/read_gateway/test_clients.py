"""Widely used clients read collections."""

import subprocess
import uuid
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaConsumer
from pyspark.sql import SparkSession

from backend.apps.collections.services import collections_maintain
from backend.runtime.layout import Layout
from tests.gateways import Gateways
from tests.integration.read_gateway.clients import (
    admin,
    config,
    java_tool,
    kcat,
    properties,
    received,
    values,
    wait_until_seen,
)
from tests.integration.read_gateway.conftest import Reading
from tests.waiting import LIMIT_SECONDS, wait_until

CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_librdkafka(nodes: Gateways, reading: Reading, protocol: str) -> None:
    collection = reading.collection()
    collection.write(values(3000))
    wait_until_seen(nodes, reading.login, collection)
    consumer = Consumer(config(nodes, reading.login, group_protocol=protocol))
    consumer.subscribe([collection.topic])
    assert received(consumer, 3000) == Counter(values(3000))
    collection.write(values(10, 3000))
    assert received(consumer, 10) == Counter(values(10, 3000))
    consumer.close()


def test_kafka_python(nodes: Gateways, reading: Reading) -> None:
    collection = reading.collection()
    collection.write(values(1000))
    wait_until_seen(nodes, reading.login, collection)
    consumer = KafkaConsumer(
        collection.topic,
        bootstrap_servers=nodes.bootstrap.split(","),
        group_id=uuid.uuid4().hex,
        auto_offset_reset="earliest",
        **reading.login.kafka_python(),
    )
    counts: Counter[bytes] = Counter()

    def read() -> bool:
        for messages in consumer.poll(500).values():
            counts.update(message.value for message in messages)
        return counts.total() >= 1000

    wait_until(read)
    consumer.close()
    assert counts == Counter(values(1000))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_javas_console_consumer(
    nodes: Gateways, reading: Reading, project_layout: Layout, tmp_path: Path, protocol: str
) -> None:
    collection = reading.collection()
    collection.write(values(2000))
    wait_until_seen(nodes, reading.login, collection)
    group = uuid.uuid4().hex
    settings = properties(reading.login, tmp_path, f"group.protocol={protocol}")
    done = java_tool(
        project_layout,
        CONSOLE_CONSUMER,
        *("--bootstrap-server", nodes.bootstrap, "--topic", collection.topic, "--group", group),
        *("--consumer.config", settings, "--from-beginning", "--max-messages", "2000", "--timeout-ms", "40000"),
    )
    assert Counter(line.encode() for line in done.stdout.split()) == Counter(values(2000)), done.stderr
    described = java_tool(
        project_layout,
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", nodes.bootstrap, "--command-config", settings, "--describe", "--group", group),
    )
    rows = [line.split() for line in described.stdout.splitlines() if line.startswith(group)]
    assert sum(int(row[3]) for row in rows) == 2000, described.stdout + described.stderr


def test_kcat(nodes: Gateways, reading: Reading) -> None:
    collection = reading.collection()
    collection.write(values(500))
    wait_until_seen(nodes, reading.login, collection)
    done = subprocess.run(kcat(nodes, reading.login, collection.topic), capture_output=True, timeout=60, check=False)
    assert Counter(done.stdout.splitlines()) == Counter(values(500)), done.stderr


def test_keys_headers_order_and_offsets(nodes: Gateways, reading: Reading) -> None:
    collection = reading.collection(1)
    collection.write(values(300), keys=[None if n % 3 else b"key-%d" % n for n in range(300)])
    wait_until_seen(nodes, reading.login, collection)
    consumer = Consumer(config(nodes, reading.login))
    consumer.assign([TopicPartition(collection.topic, 0, 100)])
    messages: list[tuple[int, bytes | None, bytes | None]] = []

    def read() -> bool:
        messages.extend((m.offset(), m.key(), m.value()) for m in consumer.consume(200, 0.5) if m.error() is None)
        return len(messages) >= 200

    wait_until(read)
    consumer.close()
    expected = [(n, None if n % 3 else b"key-%d" % n, b'{"number":%d}' % n) for n in range(100, 300)]
    assert messages == expected


def test_an_empty_collection_does_not_block_a_group(nodes: Gateways, reading: Reading) -> None:
    empty, filled = reading.collection(4), reading.collection(2)
    filled.write(values(200))
    wait_until_seen(nodes, reading.login, empty, filled)
    consumer = Consumer(config(nodes, reading.login))
    consumer.subscribe([empty.topic, filled.topic])
    assert received(consumer, 200) == Counter(values(200))
    empty.write(values(5, 1000))
    assert received(consumer, 5) == Counter(values(5, 1000))
    consumer.close()


def test_partitions_that_were_added_are_empty_until_they_have_documents(nodes: Gateways, reading: Reading) -> None:
    collection = reading.collection(1)
    collection.write(values(100))
    wait_until_seen(nodes, reading.login, collection)
    collection.connector.connection["partitions"] = collection.partitions = 3
    collection.connector.save()
    client = admin(nodes, reading.login)
    wait_until(lambda: len(client.list_topics(timeout=LIMIT_SECONDS).topics[collection.topic].partitions) == 3)
    consumer = Consumer(config(nodes, reading.login))
    consumer.subscribe([collection.topic])
    assert received(consumer, 100) == Counter(values(100))
    parts = [TopicPartition(collection.topic, number) for number in range(3)]
    assert [consumer.get_watermark_offsets(part, LIMIT_SECONDS) for part in parts] == [(0, 100), (0, 0), (0, 0)]
    collection.write(values(30, 100))
    assert received(consumer, 30) == Counter(values(30, 100))
    consumer.close()


def test_spark_with_fail_on_data_loss(nodes: Gateways, reading: Reading, spark: SparkSession, tmp_path: Path) -> None:
    collection = reading.collection(2)
    collection.write(values(500))
    wait_until_seen(nodes, reading.login, collection)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    settings = {
        "kafka.bootstrap.servers": nodes.bootstrap,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{module} required username="{reading.login.user}" '
        f'password="{reading.login.password}";',
        "subscribe": collection.topic,
        "startingOffsets": "earliest",
        "failOnDataLoss": "true",
    }
    written = str(tmp_path / "written")
    for _ in range(2):
        stream = spark.readStream.format("kafka").options(**settings).load().select("value")
        writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start(written).awaitTermination()
        assert Counter(bytes(row.value) for row in spark.read.parquet(written).collect()) == Counter(collection.written)
        collections_maintain()
        collection.write(values(100, 500))
