"""Consumer groups: members, committed offsets, and Kafka's tools for them."""

import uuid
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec

from backend.apps.read_gateway.models import ConsumerGroup
from backend.runtime.layout import Layout
from tests.gateways import Gateways
from tests.integration.read_gateway.clients import (
    admin,
    config,
    java_tool,
    properties,
    received,
    values,
    wait_until_seen,
)
from tests.integration.read_gateway.conftest import Reading
from tests.waiting import LIMIT_SECONDS, wait_until

PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


def shares(*consumers: Consumer) -> list[int]:
    for consumer in consumers:
        consumer.poll(0.05)
    return [len(consumer.assignment()) for consumer in consumers]


@PROTOCOLS
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_members_share_partitions_and_take_over(
    nodes: Gateways, reading: Reading, protocol: str, strategy: str
) -> None:
    collection = reading.collection(6)
    wait_until_seen(nodes, reading.login, collection)
    settings = config(nodes, reading.login, group_protocol=protocol)
    if protocol == "classic":
        settings["partition.assignment.strategy"] = strategy
    first, second = Consumer(settings), Consumer(settings)
    first.subscribe([collection.topic])
    wait_until(lambda: shares(first) == [6])
    second.subscribe([collection.topic])
    wait_until(lambda: shares(first, second) == [3, 3])
    second.close()
    wait_until(lambda: shares(first) == [6])
    first.close()


@PROTOCOLS
def test_a_group_goes_on_where_it_has_committed(nodes: Gateways, reading: Reading, protocol: str) -> None:
    collection = reading.collection(2)
    collection.write(values(100))
    wait_until_seen(nodes, reading.login, collection)
    settings = config(nodes, reading.login, group_protocol=protocol)
    for begin in (0, 100):
        consumer = Consumer(settings)
        consumer.subscribe([collection.topic])
        assert received(consumer, 100) == Counter(values(100, begin))
        consumer.commit(asynchronous=False)
        consumer.close()
        collection.write(values(100, begin + 100))


def test_a_static_member_comes_back_without_a_rebalance(nodes: Gateways, reading: Reading) -> None:
    collection = reading.collection(4)
    wait_until_seen(nodes, reading.login, collection)
    settings = config(nodes, reading.login)
    first = Consumer({**settings, "group.instance.id": "first"})
    second = Consumer({**settings, "group.instance.id": "second"})
    for consumer in (first, second):
        consumer.subscribe([collection.topic])
    wait_until(lambda: shares(first, second) == [2, 2])
    client = admin(nodes, reading.login)

    def generation() -> int:
        return int(ConsumerGroup.objects.get(name=settings["group.id"]).state["generation"])

    before, had = generation(), second.assignment()
    second.close()  # a static member does not leave
    again = Consumer({**settings, "group.instance.id": "second"})
    again.subscribe([collection.topic])
    wait_until(lambda: shares(first, again) == [2, 2])
    assert again.assignment() == had
    assert generation() == before
    described = client.describe_consumer_groups([settings["group.id"]])[settings["group.id"]].result(LIMIT_SECONDS)
    assert sorted(member.group_instance_id for member in described.members) == ["first", "second"]
    first.close()
    again.close()


def test_a_member_that_falls_silent_is_left_out(nodes: Gateways, reading: Reading) -> None:
    collection = reading.collection(4)
    wait_until_seen(nodes, reading.login, collection)
    settings = config(nodes, reading.login, session_timeout_ms=6000)
    first = Consumer(settings)
    # Its poll interval passes, and it leaves by itself.
    second = Consumer({**settings, "max.poll.interval.ms": 6000})
    for consumer in (first, second):
        consumer.subscribe([collection.topic])
    wait_until(lambda: shares(first, second) == [2, 2])
    wait_until(lambda: shares(first) == [4])
    first.close()
    second.close()


def test_offsets_are_committed_without_members_and_deleted(nodes: Gateways, reading: Reading) -> None:
    collection = reading.collection(2)
    collection.write(values(10))
    wait_until_seen(nodes, reading.login, collection)
    group = uuid.uuid4().hex
    consumer = Consumer(config(nodes, reading.login, group_id=group))
    place = TopicPartition(collection.topic, 1, 3, metadata="why")
    consumer.commit(offsets=[place], asynchronous=False)
    committed = consumer.committed(
        [TopicPartition(collection.topic, number) for number in (0, 1)], timeout=LIMIT_SECONDS
    )
    assert [(part.offset, part.metadata) for part in committed] == [(OFFSET_INVALID, None), (3, "why")]
    client = admin(nodes, reading.login)
    listed = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(LIMIT_SECONDS)
    assert [(p.topic, p.partition, p.offset) for p in listed.topic_partitions] == [(collection.topic, 1, 3)]
    client.delete_consumer_groups([group])[group].result(LIMIT_SECONDS)
    assert consumer.committed([TopicPartition(collection.topic, 1)], timeout=LIMIT_SECONDS)[0].offset < 0
    with pytest.raises(KafkaException) as raised:
        consumer.commit(offsets=[TopicPartition("no-such-topic", 0, 1)], asynchronous=False)
    assert raised.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    consumer.close()


def test_kafkas_tool_lists_resets_and_deletes(
    nodes: Gateways, reading: Reading, project_layout: Layout, tmp_path: Path
) -> None:
    collection = reading.collection(2)
    collection.write(values(50))
    wait_until_seen(nodes, reading.login, collection)
    group = uuid.uuid4().hex
    settings = properties(reading.login, tmp_path)

    def tool(*arguments: str) -> str:
        done = java_tool(
            project_layout,
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
            *("--bootstrap-server", nodes.bootstrap, "--command-config", settings, *arguments),
        )
        return done.stdout + done.stderr

    reset = ("--group", group, "--topic", collection.topic, "--reset-offsets", "--to-offset", "10", "--execute")
    assert tool(*reset).count(collection.topic) == 2
    assert group in tool("--list")
    rows = [line.split() for line in tool("--describe", "--group", group).splitlines() if line.startswith(group)]
    assert [(row[3], row[4], row[5]) for row in rows] == [("10", "25", "15")] * 2
    assert "Successful" in tool("--delete-offsets", "--group", group, "--topic", collection.topic)
    assert "successful" in tool("--delete", "--group", group)
    assert not ConsumerGroup.objects.filter(name=group).exists()


def test_a_group_with_members_cannot_be_deleted(nodes: Gateways, reading: Reading) -> None:
    collection = reading.collection(1)
    wait_until_seen(nodes, reading.login, collection)
    settings = config(nodes, reading.login)
    consumer = Consumer(settings)
    consumer.subscribe([collection.topic])
    wait_until(lambda: shares(consumer) == [1])
    group = settings["group.id"]
    client = admin(nodes, reading.login)
    with pytest.raises(KafkaException) as raised:
        client.delete_consumer_groups([group])[group].result(LIMIT_SECONDS)
    assert raised.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    consumer.close()


def test_places_by_time(nodes: Gateways, reading: Reading) -> None:
    collection = reading.collection(1)
    collection.write(values(10))
    wait_until_seen(nodes, reading.login, collection)
    consumer = Consumer(config(nodes, reading.login))
    consumer.assign([TopicPartition(collection.topic, 0, 9)])
    message = None

    def answered() -> bool:
        nonlocal message
        message = consumer.poll(0.5)
        return message is not None

    wait_until(answered)
    assert message is not None
    time = message.timestamp()[1]

    def place(timestamp: int) -> int:
        return int(
            consumer.offsets_for_times([TopicPartition(collection.topic, 0, timestamp)], timeout=LIMIT_SECONDS)[
                0
            ].offset
        )

    assert (place(0), place(time), place(time + 1)) == (0, 0, -1)
    assert consumer.get_watermark_offsets(TopicPartition(collection.topic, 0), timeout=LIMIT_SECONDS) == (0, 10)
    client = admin(nodes, reading.login)
    newest = client.list_offsets({TopicPartition(collection.topic, 0): OffsetSpec.max_timestamp()})
    (result,) = [future.result(LIMIT_SECONDS) for future in newest.values()]
    assert (result.offset, result.timestamp) == (9, time)
    consumer.close()
