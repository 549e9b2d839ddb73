"""The lane task: exactly once, in order, through kills, rebalances and an absent Kafka."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator

import pytest
import redis
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from backend.domain.message import Message, new_message_id, utc_now
from backend.manager_api import snapshot as stored
from spark_jobs.streaming.stop_channel import StopChannel
from tests.infra import KAFKA, REDIS_URL, VAR, Server
from tests.waiting import wait_until

PARTITIONS = 4
KEYS = 400


class Slots:
    """Lane tasks that copy one topic to another."""

    def __init__(self, source: str, target: str) -> None:
        self.source, self.target = source, target
        self._running: dict[int, tuple[subprocess.Popen[bytes], StopChannel]] = {}
        self.log = VAR / f"{source}.log"

    def start(self, slot: int) -> None:
        channel = StopChannel("127.0.0.1")
        command = [sys.executable, "-m", "tests.integration.lane_process", self.source, self.target]
        with self.log.open("ab") as log:
            process = subprocess.Popen([*command, str(slot), str(channel.address[1])], stdout=log, stderr=log)
        self._running[slot] = process, channel

    def kill(self, slot: int) -> None:
        process, channel = self._running.pop(slot)
        process.send_signal(signal.SIGKILL)
        process.wait()
        channel.stop()

    def stop(self, slot: int) -> int:
        process, channel = self._running.pop(slot)
        channel.stop()
        return process.wait(60)

    def alive(self) -> list[int]:
        return [slot for slot, (process, _) in self._running.items() if process.poll() is None]

    def kill_all(self) -> None:
        for slot in list(self._running):
            self.kill(slot)


@pytest.fixture
def slots(kafka: Server, redis_server: Server) -> Iterator[Slots]:
    source, target = f"in-{uuid.uuid4()}", f"out-{uuid.uuid4()}"
    admin = AdminClient({"bootstrap.servers": KAFKA})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in (source, target)]).values():
        future.result()
    # A task starts with any configuration it can have; this one needs none.
    redis.from_url(REDIS_URL).hset(stored.INGEST_KEYS, "unused", stored.IngestKey("unused", uuid.uuid4(), 1).to_json())
    started = Slots(source, target)
    yield started
    started.kill_all()


def send(topic: str, first: int, last: int) -> None:
    producer = Producer({"bootstrap.servers": KAFKA, "enable.idempotence": True, "linger.ms": 5})
    for number in range(first, last):
        message_id = new_message_id()
        body = str(number).encode()
        key = str(number % KEYS).encode()
        message = Message(message_id, "p", 1, key, body, "text/plain", utc_now(), ("next",))
        producer.produce(topic, body, key, partition=number % PARTITIONS, headers=message.headers())
        producer.poll(0)
    assert producer.flush(30) == 0


class Copied:
    """Reads committed records of the target; remembers everything."""

    def __init__(self, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": KAFKA,
                "group.id": str(uuid.uuid4()),
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        self.numbers: list[int] = []
        self.by_partition: dict[int, list[int]] = {}

    def read(self) -> int:
        for record in self._consumer.consume(5000, 0.2):
            error = record.error()
            if error is None:
                number = int(record.value())  # type: ignore[arg-type]
                self.numbers.append(number)
                self.by_partition.setdefault(record.partition(), []).append(number)  # type: ignore[arg-type]
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
        return len(self.numbers)

    def wait_for(self, count: int, timeout: float = 60) -> None:
        wait_until(lambda: self.read() >= count, timeout, 0)

    def close(self) -> None:
        self._consumer.close()


def assert_once_and_in_order(copied: Copied, count: int) -> None:
    end = time.monotonic() + 2
    while time.monotonic() < end:  # duplicates would arrive now
        copied.read()
    copied.close()
    assert len(copied.numbers) == count
    assert sorted(copied.numbers) == list(range(count))
    for written in copied.by_partition.values():
        for key in range(KEYS):
            of_one = [number for number in written if number % KEYS == key]
            assert of_one == sorted(of_one)


def test_each_message_once_through_rebalances_kills_and_drains(slots: Slots) -> None:
    copied = Copied(slots.target)
    slots.start(0)
    slots.start(1)
    send(slots.source, 0, 3000)
    copied.wait_for(500)
    slots.start(2)
    send(slots.source, 3000, 6000)
    copied.wait_for(3500)
    slots.kill(1)
    send(slots.source, 6000, 9000)
    copied.wait_for(6500)
    slots.start(1)
    send(slots.source, 9000, 12000)
    copied.wait_for(9500)
    assert slots.stop(0) == 0, slots.log.read_text()[-3000:]
    copied.wait_for(12000)
    assert sorted(slots.alive()) == [1, 2], slots.log.read_text()[-3000:]
    assert_once_and_in_order(copied, 12000)


def test_it_goes_on_when_kafka_is_back(slots: Slots, kafka: Server) -> None:
    restart_while_messages_flow(slots, kafka, 2)


@pytest.mark.long
def test_it_goes_on_each_time_that_kafka_is_back(slots: Slots, kafka: Server) -> None:
    restart_while_messages_flow(slots, kafka, 6)


def restart_while_messages_flow(slots: Slots, kafka: Server, times: int) -> None:
    copied = Copied(slots.target)
    for slot in range(PARTITIONS):
        slots.start(slot)
    send(slots.source, 0, 1000)
    copied.wait_for(200)
    for sent in range(1000, 1000 * (times + 1), 1000):
        kafka.stop(signal.SIGTERM)
        kafka.start()
        send(slots.source, sent, sent + 1000)
        copied.wait_for(sent + 1000)
    assert slots.alive() == list(range(PARTITIONS)), slots.log.read_text()[-3000:]
    assert_once_and_in_order(copied, 1000 * (times + 1))


def test_it_goes_on_after_a_stall_longer_than_a_transaction_may_take(slots: Slots, kafka: Server) -> None:
    copied = Copied(slots.target)
    slots.start(0)
    send(slots.source, 0, 1000)
    copied.wait_for(200)
    assert kafka.process is not None
    os.kill(kafka.process.pid, signal.SIGSTOP)
    time.sleep(35)
    os.kill(kafka.process.pid, signal.SIGCONT)
    copied.wait_for(1000)
    assert slots.alive() == [0], slots.log.read_text()[-3000:]
    assert_once_and_in_order(copied, 1000)
