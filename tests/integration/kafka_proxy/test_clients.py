"""Widely used clients, through one and three proxies in front of three real brokers."""

import time
import uuid
from collections import Counter
from functools import partial
from itertools import islice
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
)
from kafka import KafkaConsumer, KafkaProducer

from tests.integration.kafka_proxy.clients import MESSAGES, PARTITIONS, make_topic, received, retried, send, values
from tests.kafka_cluster import KafkaCluster
from tests.kafka_proxies import Proxies
from tests.waiting import LIMIT_SECONDS, wait_until

TOPIC_TOOL = "org.apache.kafka.tools.TopicCommand"
SHARE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
SHARE_GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
GROUP_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def test_kafka_topics_prints_only_proxy_nodes(cluster: KafkaCluster, front: Proxies, topic: str) -> None:
    done = cluster.tool(TOPIC_TOOL, "--bootstrap-server", front[0].address, "--describe", "--topic", topic)
    lines = [line for line in done.stdout.splitlines() if "Partition:" in line]
    assert len(lines) == PARTITIONS, done.stdout + done.stderr
    known = {str(100 + number) for number in range(len(front))}
    for line in lines:
        fields = dict(part.split(": ") for part in line.strip().split("\t") if ": " in part)
        named = {fields["Leader"], *fields["Replicas"].split(","), *fields["Isr"].split(",")}
        assert named <= known, line
    # Each proxy represents the same number of brokers.
    leaders = {line.split("Leader: ")[1].split()[0] for line in lines}
    assert leaders == known


def test_metadata_and_cluster_name_only_proxies(front: Proxies) -> None:
    admin = AdminClient({"bootstrap.servers": front.bootstrap})
    addresses = {f"{node.host}:{node.port}" for node in admin.list_topics(timeout=LIMIT_SECONDS).brokers.values()}
    assert addresses == set(front.bootstrap.split(","))
    described = admin.describe_cluster().result(LIMIT_SECONDS)
    assert {f"{node.host}:{node.port}" for node in described.nodes} == addresses
    assert f"{described.controller.host}:{described.controller.port}" in addresses


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_librdkafka_produces_and_consumes(front: Proxies, topic: str, protocol: str) -> None:
    send(front.bootstrap, topic, values(), **{"enable.idempotence": True})
    assert received(front.bootstrap, topic, MESSAGES, **{"group.protocol": protocol}) == Counter(values())


def test_kafka_python_produces_and_consumes(front: Proxies, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=front.bootstrap.split(","), linger_ms=1)
    for value in values():
        producer.send(topic, value, key=value)
    producer.flush(LIMIT_SECONDS)
    producer.close()
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=front.bootstrap.split(","),
        group_id=uuid.uuid4().hex,
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(LIMIT_SECONDS * 1000),
    )
    counts = Counter(message.value for message in islice(consumer, MESSAGES))
    ends = consumer.end_offsets(consumer.assignment())
    consumer.close()
    assert counts == Counter(values())
    assert sum(ends.values()) == MESSAGES


@pytest.mark.parametrize(
    ("front", "protocol"),
    [
        ("one", "classic"),
        pytest.param("one", "consumer", marks=pytest.mark.long),
        pytest.param("three", "classic", marks=pytest.mark.long),
        ("three", "consumer"),
        ("racked", "classic"),
        pytest.param("racked", "consumer", marks=pytest.mark.long),
    ],
    indirect=["front"],
)
def test_javas_console_tools_produce_and_consume(
    cluster: KafkaCluster, front: Proxies, topic: str, protocol: str, tmp_path: Path
) -> None:
    lines = tmp_path / "lines"
    lines.write_bytes(b"".join(value + b"\n" for value in values()))
    sent = cluster.tool(
        "org.apache.kafka.tools.ConsoleProducer",
        *("--bootstrap-server", front.bootstrap, "--topic", topic),
        input_file=lines,
    )
    assert sent.returncode == 0, sent.stderr
    group = uuid.uuid4().hex
    read = cluster.tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", front.bootstrap, "--topic", topic, "--from-beginning", "--group", group),
        *("--max-messages", str(MESSAGES), "--timeout-ms", "120000"),
        *("--consumer-property", f"group.protocol={protocol}"),
    )
    assert Counter(line.encode() for line in read.stdout.split()) == Counter(values()), read.stderr
    described = cluster.tool(GROUP_TOOL, "--bootstrap-server", front[0].address, "--describe", "--group", group)
    rows = [line.split() for line in described.stdout.splitlines() if line.startswith(group)]
    assert sum(int(row[3]) for row in rows) == MESSAGES, described.stdout + described.stderr


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement(three: Proxies, topic: str, acks: str) -> None:
    # A broker that does not know yet that it leads a partition of a new topic drops what nobody wants acknowledged.
    send(three.bootstrap, topic, values(300))
    send(three.bootstrap, topic, values(600)[300:], acks=acks)
    assert received(three.bootstrap, topic, 600) == Counter(values(600))


@pytest.mark.parametrize(("minimum", "wait"), [(1, 0), (1, 1), (1, 500), (1_000_000, 300)])
def test_every_way_to_wait_for_records(three: Proxies, topic: str, minimum: int, wait: int) -> None:
    send(three.bootstrap, topic, values(500))
    config = {"fetch.min.bytes": minimum, "fetch.wait.max.ms": wait}
    assert received(three.bootstrap, topic, 500, **config) == Counter(values(500))


def test_records_that_come_while_a_fetch_waits_are_delivered_at_once(three: Proxies, topic: str) -> None:
    config = {
        "bootstrap.servers": three.bootstrap,
        "group.id": uuid.uuid4().hex,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 15_000,
    }
    consumer = Consumer(config)
    consumer.subscribe([topic])
    wait_until(lambda: consumer.poll(0.2) is None and len(consumer.assignment()) == PARTITIONS)
    producer = Producer({"bootstrap.servers": three.bootstrap, "linger.ms": 0})
    took = []
    for number in range(20):
        began = time.monotonic()
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
        producer.poll(0)
        message = consumer.poll(LIMIT_SECONDS)
        assert message is not None
        assert message.value() == b"%d" % number
        took.append(time.monotonic() - began)
    consumer.close()
    assert sorted(took)[len(took) // 2] < 7, took  # and not the fifteen seconds that a fetch may wait


def test_a_topic_of_many_sizes_and_partitions(front: Proxies, cluster: KafkaCluster) -> None:
    name = make_topic(cluster, 30)
    sizes = [1, 100, 10_000, 200_000, 900_000]
    sent = [bytes([number]) * sizes[number % len(sizes)] for number in range(50)]
    send(front.bootstrap, name, sent)
    assert received(front.bootstrap, name, 50) == Counter(sent)


def test_transactions_commit_and_abort(front: Proxies, cluster: KafkaCluster, topic: str) -> None:
    source = make_topic(cluster)
    send(front.bootstrap, source, values(100))
    group = uuid.uuid4().hex
    consumer = Consumer(
        {
            "bootstrap.servers": front.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([source])
    producer = Producer({"bootstrap.servers": front.bootstrap, "transactional.id": uuid.uuid4().hex})
    retried(lambda: producer.init_transactions(60))
    read = 0
    while read < 100:
        messages = [m for m in consumer.consume(100, 1.0) if m.error() is None]
        read += len(messages)
        producer.begin_transaction()
        for message in messages:
            producer.produce(topic, message.value(), key=message.value())
        ends = consumer.position(consumer.assignment())
        places, member = [end for end in ends if end.offset >= 0], consumer.consumer_group_metadata()
        retried(partial(producer.send_offsets_to_transaction, places, member))
        retried(lambda: producer.commit_transaction(60))
    producer.begin_transaction()
    for value in (b"never", b"seen"):
        producer.produce(topic, value)
    producer.flush(LIMIT_SECONDS)
    retried(lambda: producer.abort_transaction(60))
    parts = [TopicPartition(source, number) for number in range(PARTITIONS)]
    committed = consumer.committed(parts, timeout=LIMIT_SECONDS)
    consumer.close()
    assert sum(max(place.offset, 0) for place in committed) == 100
    counts = received(front.bootstrap, topic, 100, **{"isolation.level": "read_committed"})
    assert counts == Counter(values(100))


def test_two_members_share_a_group_and_take_over(front: Proxies, topic: str) -> None:
    config = {"bootstrap.servers": front.bootstrap, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
    first, second = Consumer(config), Consumer(config)
    first.subscribe([topic])
    second.subscribe([topic])

    def shares() -> list[int]:
        first.poll(0.05)
        second.poll(0.05)
        return [len(first.assignment()), len(second.assignment())]

    wait_until(lambda: shares() == [3, 3])
    second.close()

    def all_of_it() -> bool:
        first.poll(0.05)
        return len(first.assignment()) == PARTITIONS

    wait_until(all_of_it)
    first.close()


def test_offsets_are_committed_without_joining(front: Proxies, topic: str) -> None:
    send(front.bootstrap, topic, values(50))
    config = {"bootstrap.servers": front.bootstrap, "group.id": uuid.uuid4().hex}
    consumer = Consumer(config)
    consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    assert consumer.committed([TopicPartition(topic, 0)], timeout=LIMIT_SECONDS)[0].offset == 3
    consumer.close()


def test_a_reader_near_a_follower_reads_there(racked: Proxies, cluster: KafkaCluster) -> None:
    name = make_topic(cluster, 1)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap()})
    leader = admin.list_topics(name, timeout=LIMIT_SECONDS).topics[name].partitions[0].leader
    follower = next(broker for broker in cluster.brokers if broker.id != leader)
    send(racked.bootstrap, name, [b"x" * 10_000] * 200)
    label = f'headrace_proxy_broker_bytes_total{{broker="{follower.address()}",direction="from"}}'
    before = sum(proxy.metric(label) for proxy in racked)
    counts = received(racked.bootstrap, name, 200, **{"client.rack": f"rack{follower.id}"})
    assert counts == Counter({b"x" * 10_000: 200})
    assert sum(proxy.metric(label) for proxy in racked) - before > 200 * 10_000


def test_a_proxy_of_a_rack_serves_its_rack(racked: Proxies, topic: str) -> None:
    before = [proxy.metric("headrace_proxy_out_of_rack_requests_total") for proxy in racked]
    send(racked.bootstrap, topic, values(300))
    assert [proxy.metric("headrace_proxy_out_of_rack_requests_total") for proxy in racked] == before


def test_share_groups_give_each_record_to_one_member(cluster: KafkaCluster, one: Proxies, topic: str) -> None:
    group, address = uuid.uuid4().hex, ("--bootstrap-server", one.bootstrap)
    begins = ("--alter", "--entity-type", "groups", "--entity-name", group, "--add-config")
    done = cluster.tool("kafka.admin.ConfigCommand", *address, *begins, "share.auto.offset.reset=earliest")
    assert done.returncode == 0, done.stderr
    send(one.bootstrap, topic, values(300))
    of_group = (*address, "--topic", topic, "--group", group)
    counts: Counter[str] = Counter()
    for limit in ("100", "200"):
        done = cluster.tool(SHARE_CONSUMER, *of_group, "--max-messages", limit, "--timeout-ms", "120000")
        counts.update(done.stdout.split())
    assert counts == Counter(value.decode() for value in values(300)), done.stderr
    done = cluster.tool(SHARE_GROUPS, *address, "--describe", "--group", group)
    rows = [line.split() for line in done.stdout.splitlines() if topic in line]
    assert sorted(int(row[2]) for row in rows) == list(range(PARTITIONS)), done.stdout + done.stderr
    done = cluster.tool(SHARE_GROUPS, *address, "--delete", "--group", group)
    assert "successful" in done.stdout, done.stdout + done.stderr
