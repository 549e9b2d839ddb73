"""Faults of clients, brokers and proxies."""

import contextlib
import json
import os
import signal
import socket
import struct
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import google_crc32c
import pytest
from confluent_kafka import Consumer, ElectionType, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from backend.kafka.gateway.batches import Compression, batches
from backend.kafka.gateway.ports import Record
from backend.kafka.wire import codec
from backend.kafka.wire.api import ApiKey, ErrorCode
from tests.infra import VAR
from tests.integration.kafka_proxy.clients import PARTITIONS, make_topic, received, retried, send, values
from tests.kafka_cluster import BrokerProcess, KafkaCluster
from tests.kafka_proxies import Proxies, proxies
from tests.waiting import LIMIT_SECONDS, wait_until


def test_idle_connections_that_brokers_close_are_opened_again(one: Proxies, topic: str) -> None:
    producer = Producer({"bootstrap.servers": one.bootstrap, "linger.ms": 0})
    failed: list[Any] = []
    for number in range(2):
        producer.produce(topic, b"%d" % number, on_delivery=lambda error, _: error and failed.append(error))
        assert producer.flush(LIMIT_SECONDS) == 0
        time.sleep(0 if number else 10)  # longer than brokers keep idle connections
    assert not failed


def connected(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), LIMIT_SECONDS)


def exchange(address: str, data: bytes) -> bytes:
    """Everything that comes back until the connection is closed, or nothing comes for very long."""
    with connected(address) as connection:
        connection.sendall(data)
        data = b""
        try:
            while chunk := connection.recv(65536):
                data += chunk
        except TimeoutError:
            return data + b"<open>"
        except ConnectionResetError:
            pass
        return data


def answered(connection: socket.socket, data: bytes) -> bytes:
    """One answer, with its size."""
    connection.sendall(data)
    response = b""
    while len(response) < 4 or len(response) < 4 + struct.unpack(">i", response[:4])[0]:
        chunk = connection.recv(65536)
        assert chunk, "The connection was closed."
        response += chunk
    return response


def frame(api_key: int, version: int, body: bytes) -> bytes:
    data = struct.pack(">hhih", api_key, version, 7, -1) + body
    return struct.pack(">i", len(data)) + data


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1) + b"x",
        struct.pack(">i", 3) + b"abc",
        b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n",
        frame(3, 1, struct.pack(">i", 2**31 - 1)),  # metadata of two billion topics
        frame(1, 11, b"\x00" * 5),
        frame(0, 9, b"\xff" * 40),
        frame(4, 1, b""),  # LeaderAndIsr
        frame(9999, 0, b""),
    ],
    ids=["negative", "huge", "short", "http", "count", "fetch", "produce", "between-brokers", "unknown"],
)
def test_malformed_frames_close_their_connection_only(one: Proxies, topic: str, data: bytes) -> None:
    producer = Producer({"bootstrap.servers": one.bootstrap, "linger.ms": 0})
    producer.produce(topic, b"before")
    assert producer.flush(LIMIT_SECONDS) == 0
    log = one[0].log.read_text()
    assert not exchange(one[0].address, data).endswith(b"<open>")
    wait_until(lambda: "The connection is closed." in one[0].log.read_text()[len(log) :])
    assert "Traceback" not in one[0].log.read_text()
    failed: list[Any] = []
    producer.produce(topic, b"after", on_delivery=lambda error, _: error and failed.append(error))
    assert producer.flush(LIMIT_SECONDS) == 0
    assert not failed


def test_a_version_that_is_too_new_is_answered_with_those_that_there_are(one: Proxies) -> None:
    with connected(one[0].address) as connection:
        answer = answered(connection, frame(18, 99, b"\0"))
        size, correlation, error, count, key, low, high = struct.unpack(">iihihhh", answer[:20])
        assert (size, correlation, error, count, key, low) == (len(answer) - 4, 7, 35, 1, 18, 0)
        assert high == 4
        # The connection stays open for the one that comes next.
        assert answered(connection, frame(18, 0, b""))[4:10] == struct.pack(">ih", 7, 0)


def test_a_drain_answers_what_is_open(cluster: KafkaCluster, topic: str) -> None:
    with proxies(cluster, VAR / "drain", 1) as nodes:
        assert nodes[0].get("/health")[0] == 200
        send(nodes.bootstrap, topic, values(10))
        assert nodes[0].metric("headrace_proxy_requests_total") > 0
        status = json.loads(nodes[0].get("/status")[1])
        assert [broker["id"] for broker in status["brokers"]] == [1, 2, 3]
        assert status["clients"][0]["name"] == "rdkafka"
        producer = Producer({"bootstrap.servers": nodes.bootstrap, "linger.ms": 0, "message.timeout.ms": 5000})
        failed: list[Any] = []
        for number in range(200):
            producer.produce(topic, b"%d" % number, on_delivery=lambda error, _: error and failed.append(error))
        producer.poll(0.05)
        nodes[0].stop()  # waits for its end, and longer than a drain may take
        assert "Traceback" not in nodes[0].log.read_text()


_MOVES = 60
_PATIENCE_MS = 300_000
"""How long a producer tries: longer than it takes until a killed broker is replaced and started anew."""


class Traffic:
    """An idempotent producer, a transactional one and a consumer group, which run until they are stopped."""

    def __init__(self, bootstrap: str, topic: str, transactional_topic: str) -> None:
        self._bootstrap = bootstrap
        self._topics = topic, transactional_topic
        self._stop = threading.Event()
        self._is_complete = threading.Event()
        self.acknowledged: tuple[list[bytes], list[bytes]] = ([], [])
        self.received: Counter[bytes] = Counter()
        self.errors: list[str] = []
        clients = self._produce, self._transact, self._consume
        self._threads = [threading.Thread(target=self._guarded, args=(client,)) for client in clients]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stops once every acknowledged record has been received, or after the longest wait of a test."""
        self._stop.set()
        for thread in self._threads[:2]:
            thread.join()
        acknowledged = Counter([*self.acknowledged[0], *self.acknowledged[1]])
        with contextlib.suppress(BaseException):
            wait_until(lambda: not acknowledged - self.received)
        self._is_complete.set()
        self._threads[2].join()

    def check(self) -> None:
        assert not self.errors, self.errors
        acknowledged = Counter([*self.acknowledged[0], *self.acknowledged[1]])
        assert not acknowledged - self.received, "lost"
        assert {value: count for value, count in self.received.items() if count > 1} == {}, "doubled"

    def is_flowing(self) -> Callable[[], bool]:
        """A function that tells whether each of them has made progress since this call."""
        before = [len(self.acknowledged[0]), len(self.acknowledged[1]), self.received.total()]

        def has_moved() -> bool:
            now = [len(self.acknowledged[0]), len(self.acknowledged[1]), self.received.total()]
            return all(new > old + 20 for new, old in zip(now, before, strict=True))

        return has_moved

    def _guarded(self, client: Callable[[], None]) -> None:
        try:
            client()
        except Exception as error:
            self.errors.append(f"{client.__name__}: {error!r}")

    def _produce(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "message.timeout.ms": _PATIENCE_MS}
        )

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                self.errors.append(f"produce: {error}")
            else:
                self.acknowledged[0].append(message.value())

        number = 0
        while not self._stop.is_set():
            value = b"p%d" % number
            producer.produce(self._topics[0], value, key=value, on_delivery=delivered)
            producer.poll(0.002)
            number += 1
        producer.flush(_PATIENCE_MS / 1000)

    def _transact(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": uuid.uuid4().hex,
                "transaction.timeout.ms": _PATIENCE_MS,
            }
        )
        retried(lambda: producer.init_transactions(60))
        number = 0
        while not self._stop.is_set():
            batch = [b"t%d" % (number + index) for index in range(20)]
            number += 20
            producer.begin_transaction()
            try:
                for value in batch:
                    producer.produce(self._topics[1], value, key=value)
                retried(lambda: producer.commit_transaction(60))
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                retried(lambda: producer.abort_transaction(60))
                continue
            self.acknowledged[1].extend(batch)

    def _consume(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": uuid.uuid4().hex,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "session.timeout.ms": 60_000,
            }
        )
        consumer.subscribe(list(self._topics))
        seen: set[tuple[str, int, int]] = set()
        while not self._is_complete.is_set():
            for message in consumer.consume(500, 0.2):
                place = message.topic(), message.partition(), message.offset()
                # A record that is read again after a rebalance is not a duplicate.
                if message.error() is None and place not in seen:
                    seen.add(place)
                    self.received[message.value()] += 1
            with contextlib.suppress(KafkaException):
                consumer.commit(asynchronous=True)
        consumer.close()


SECONDS = float(os.environ.get("PROXY_CHAOS_SECONDS", "0"))
"""How long each fault lasts, in seconds: short in the tests, minutes in manual runs."""


def test_a_killed_broker_and_a_killed_proxy_lose_and_double_nothing(cluster: KafkaCluster) -> None:
    with proxies(cluster, VAR / "chaos", 3) as nodes:
        # With one in-sync replica, Kafka itself may lose or duplicate what a killed leader had acknowledged.
        durable = {"min.insync.replicas": "2"}
        topics = make_topic(cluster, **durable), make_topic(cluster, **durable)
        traffic = Traffic(nodes.bootstrap, *topics)
        traffic.start()
        try:
            wait_until(traffic.is_flowing())
            coordinator = coordinating(cluster)
            for broker in (coordinator, next(b for b in cluster.brokers if b is not coordinator)):
                broker.stop(signal.SIGKILL)
                wait_until(traffic.is_flowing())
                time.sleep(SECONDS)
                broker.start()
                cluster.wait_until_joined()
                wait_until(traffic.is_flowing())
            nodes[1].stop(signal.SIGKILL)
            wait_until(lambda: nodes[0].metric("headrace_proxy_peers_down") == 1)
            wait_until(traffic.is_flowing())
            time.sleep(SECONDS)
            admin = AdminClient({"bootstrap.servers": nodes[0].address})
            wait_until(lambda: brokers_of(admin) == {nodes[0].address, nodes[2].address})
            nodes[1].start()
            wait_until(lambda: nodes[0].metric("headrace_proxy_peers_down") == 0)
            wait_until(lambda: brokers_of(admin) == {node.address for node in nodes})
            wait_until(traffic.is_flowing())
        finally:
            traffic.stop()
        traffic.check()
        for proxy in nodes:
            assert "Traceback" not in proxy.log.read_text()


def test_leaderships_that_move_lose_and_double_nothing(cluster: KafkaCluster) -> None:
    """Brokers that know the new leader earlier than others, and clients that write meanwhile, are met by many moves."""
    with proxies(cluster, VAR / "moves", 3) as nodes:
        topics = make_topic(cluster), make_topic(cluster)
        traffic = Traffic(nodes.bootstrap, *topics)
        traffic.start()
        try:
            wait_until(traffic.is_flowing())
            for number in range(_MOVES):
                move_leadership(cluster, topics[number % 2], number // 2 % PARTITIONS)
            wait_until(traffic.is_flowing())
        finally:
            traffic.stop()
        traffic.check()
        for proxy in nodes:
            assert "Traceback" not in proxy.log.read_text()


def test_what_follows_a_rejected_write_is_not_written_before_it(cluster: KafkaCluster) -> None:
    topic = make_topic(cluster, partitions=1)
    moved, out_of_order = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    with proxies(cluster, VAR / "rejected", 1) as nodes, connected(nodes[0].address) as connection:
        wait_until(lambda: asked(connection, ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None).error_code == 0)
        producer = asked(connection, ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None).producer_id
        assert write(connection, topic, producer, 0) == ErrorCode.NONE
        move_leadership(cluster, topic, 0)
        admins = [AdminClient({"bootstrap.servers": broker.address()}) for broker in cluster.brokers]
        wait_until(lambda: len({admin.list_topics(topic).topics[topic].partitions[0].leader for admin in admins}) == 1)
        # The proxy learns of the new leader by the first rejection. A gap is told when the repeated write has it, too.
        codes = [write(connection, topic, producer, sequence) for sequence in (1, 2, 1, 2, 9, 9, 3)]
        assert codes == [moved, moved, ErrorCode.NONE, ErrorCode.NONE, moved, out_of_order, ErrorCode.NONE]


def asked(connection: socket.socket, api: ApiKey, version: int, **fields: Any) -> Any:
    request = codec.write_request(api, version, 1, "tests", codec.request_type(api)(**fields))
    return codec.read_response(api, version, answered(connection, b"".join(request)))


def write(connection: socket.socket, topic: str, producer: int, sequence: int) -> int:
    """Writes a record of an idempotent producer. Returns the error code."""
    [batch] = batches([Record(0, int(time.time() * 1000), None, b"%d" % sequence)], -1, Compression.NONE, 1000)
    data = bytearray(batch.data)
    struct.pack_into(">qhi", data, 43, producer, 0, sequence)
    struct.pack_into(">I", data, 17, google_crc32c.value(bytes(data[21:])))  # of what follows
    topics = codec.request_type(ApiKey.PRODUCE).type_of("topic_data")
    part = topics.type_of("partition_data")(index=0, records=bytes(data))
    answer = asked(
        connection,
        ApiKey.PRODUCE,
        9,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[topics(name=topic, partition_data=[part])],
    )
    return int(answer.responses[0].partition_responses[0].error_code)


def move_leadership(cluster: KafkaCluster, topic: str, partition: int) -> None:
    """To the broker that has led the partition least recently."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap()})

    def state() -> Any:
        return admin.list_topics(topic, LIMIT_SECONDS).topics[topic].partitions[partition]

    former, *others = state().replicas
    reassign(cluster.brokers[0].address(), topic, partition, [*others, former])
    [(_, error)] = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, partition)]).result().items()
    assert error is None, error
    wait_until(lambda: state().leader == others[0], interval=0.02)


def reassign(address: str, topic: str, partition: int, replicas: list[int]) -> None:
    """Sets a partition's replicas by AlterPartitionReassignments, which no client of Python has."""
    body = struct.pack(
        f">iBB{len(topic)}sBiB{len(replicas)}i3x",
        int(LIMIT_SECONDS * 1000),
        2,
        len(topic) + 1,
        topic.encode(),
        2,
        partition,
        len(replicas) + 1,
        *replicas,
    )
    with connected(address) as connection:
        answer = answered(connection, frame(45, 0, b"\0" + body))
    assert struct.unpack(">h", answer[13:15]) == (0,), answer


def brokers_of(admin: AdminClient) -> set[str]:
    return {f"{node.host}:{node.port}" for node in admin.list_topics(timeout=LIMIT_SECONDS).brokers.values()}


def coordinating(cluster: KafkaCluster) -> BrokerProcess:
    """The leader of a partition of the groups' offsets."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap()})
    topics = admin.list_topics("__consumer_offsets", timeout=LIMIT_SECONDS).topics
    leader = topics["__consumer_offsets"].partitions[0].leader
    return next(broker for broker in cluster.brokers if broker.id == leader)


def test_a_broker_that_hangs_delays_its_own_partitions_only(cluster: KafkaCluster) -> None:
    with proxies(cluster, VAR / "hang", 1, request_timeout_ms=3000) as nodes:
        name = make_topic(cluster)
        send(nodes.bootstrap, name, values(300))
        # Without the controller that leads, the cluster would first have to elect another one.
        controller = cluster.controller()
        broker = next(broker for broker in cluster.brokers if broker is not controller)
        assert broker.process is not None
        broker.process.send_signal(signal.SIGSTOP)
        try:
            # The cluster fences the broker, and the proxy follows.
            send(nodes.bootstrap, name, values(300))
        finally:
            broker.process.send_signal(signal.SIGCONT)
        cluster.wait_until_joined()
        assert set(received(nodes.bootstrap, name, 600)) == set(values(300))
