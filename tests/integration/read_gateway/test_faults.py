"""Several nodes, of which one is killed: clients go on, and each document is read once."""

import signal
import threading
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from backend.apps.collections.selectors import collection_store
from backend.apps.collections.services import collections_maintain
from tests.gateways import GatewayNode, Gateways, TestCollection, gateways
from tests.infra import VAR
from tests.integration.read_gateway.clients import admin, config, values, wait_until_seen
from tests.integration.read_gateway.conftest import Reading
from tests.waiting import LIMIT_SECONDS, wait_until

ROUNDS = 3
EACH = 400


@pytest.fixture(scope="module")
def three(database_url: str) -> Iterator[Gateways]:
    with gateways(VAR / "gateway-three", database_url, 3) as nodes:
        yield nodes


def living(nodes: Gateways, reading: Reading) -> int:
    """How many nodes are named to clients by every node that runs."""
    running = Gateways(node for node in nodes if node.process is not None)
    counts = {
        len(admin(Gateways([node]), reading.login).list_topics(timeout=LIMIT_SECONDS).brokers) for node in running
    }
    return counts.pop() if len(counts) == 1 else 0


class Reader(threading.Thread):
    """Reads until it is told to stop, and counts every value."""

    def __init__(self, consumer: Consumer) -> None:
        super().__init__(daemon=True)
        self.counts: Counter[bytes] = Counter()
        self.errors: list[str] = []
        self._consumer = consumer
        self._stop_event = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._stop_event.is_set():
            for message in self._consumer.consume(200, 0.2):
                if message.error() is None:
                    self.counts[message.value()] += 1
                elif not message.error().retriable():
                    self.errors.append(str(message.error()))

    def has(self, collection: TestCollection) -> bool:
        return self.counts.keys() >= set(collection.written)

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop_event.set()
        self.join(60)
        self._consumer.close()


def test_the_nodes_share_partitions_and_groups(three: Gateways, reading: Reading) -> None:
    collection = reading.collection(30)
    wait_until_seen(three, reading.login, collection)
    wait_until(lambda: living(three, reading) == 3)
    topic = admin(three, reading.login).list_topics(timeout=LIMIT_SECONDS).topics[collection.topic]
    led = Counter(partition.leader for partition in topic.partitions.values())
    assert led.keys() == {1, 2, 3}


@pytest.mark.parametrize("kind", ["classic", "consumer", "assigned"])
def test_a_killed_node_costs_nothing(three: Gateways, reading: Reading, kind: str) -> None:
    collection = reading.collection(12)
    wait_until_seen(three, reading.login, collection)
    wait_until(lambda: living(three, reading) == 3)
    protocol = "classic" if kind == "assigned" else kind
    settings = config(three, reading.login, group_protocol=protocol)
    consumer = Consumer(settings)
    if kind == "assigned":
        consumer.assign([TopicPartition(collection.topic, number, 0) for number in range(12)])
    else:
        consumer.subscribe([collection.topic])
    with Reader(consumer) as reader:
        collection.write(values(EACH))
        wait_until(lambda: reader.has(collection))
        for number in range(ROUNDS):
            victim: GatewayNode = three[number % 3]
            victim.stop(signal.SIGKILL)
            collection.write(values(EACH, len(collection.written)))
            wait_until(lambda: reader.has(collection), 120)
            victim.start()
            wait_until(victim.is_ready)
            collection.write(values(EACH, len(collection.written)))
            wait_until(lambda: living(three, reading) == 3)
            wait_until(lambda: reader.has(collection), 120)
    assert not reader.errors
    assert reader.counts == Counter(collection.written)


def test_a_node_that_stops_hands_over_at_once(three: Gateways, reading: Reading) -> None:
    collection = reading.collection(12)
    wait_until_seen(three, reading.login, collection)
    wait_until(lambda: living(three, reading) == 3)
    consumer = Consumer(config(three, reading.login))
    consumer.subscribe([collection.topic])
    with Reader(consumer) as reader:
        collection.write(values(EACH))
        wait_until(lambda: reader.has(collection))
        three[1].stop()
        wait_until(lambda: living(three, reading) == 2)
        collection.write(values(EACH, EACH))
        wait_until(lambda: reader.has(collection))
        three[1].start()
        wait_until(three[1].is_ready)
        wait_until(lambda: living(three, reading) == 3)
    assert reader.counts == Counter(collection.written)


def test_a_collection_whose_disk_is_not_mounted_is_not_empty(three: Gateways, reading: Reading) -> None:
    collection = reading.collection(1)
    collection.write(values(EACH))
    collections_maintain()
    folder = collection_store().location(str(reading.workspace.pk), str(collection.connector.pk)).folder
    assert folder is not None
    elsewhere = folder.rename(folder.with_name("unmounted"))
    # A node that knows what came after it also knows that this one has been written to.
    wait_until_seen(three, reading.login, collection, reading.collection(1))
    consumer = Consumer(config(three, reading.login))

    def is_refused() -> bool:
        try:
            offsets = consumer.get_watermark_offsets(TopicPartition(collection.topic, 0), 3)
        except KafkaException:
            return True
        # A node that knew the collection before the disk went away tells what it knew.
        assert offsets == (0, EACH)
        return False

    wait_until(is_refused)
    consumer.subscribe([collection.topic])
    with Reader(consumer) as reader:
        elsewhere.rename(folder)
        wait_until(lambda: reader.has(collection))
    assert not reader.errors


def test_a_collection_that_cannot_be_served_stops_no_other(three: Gateways, reading: Reading) -> None:
    unreadable, plain = reading.collection(1, keep_hours="nonsense"), reading.collection(1)
    plain.connector.connection = {}  # all defaults
    plain.connector.save()
    plain.write(values(10))
    wait_until_seen(three, reading.login, plain)
    topics = admin(three, reading.login).list_topics(timeout=LIMIT_SECONDS).topics
    assert plain.topic in topics
    assert unreadable.topic not in topics
