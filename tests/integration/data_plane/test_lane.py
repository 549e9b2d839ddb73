"""The lane task: exactly once, in order, through kills, rebalances and an absent Kafka."""

import os
import random
import signal
import string
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic

from backend.domain import limits, routing
from backend.domain import message as names
from backend.domain.message import Message, new_message_id, utc_now
from backend.domain.records import Record
from backend.kafka.client.positions import Positions
from backend.settings import platform_settings
from spark_jobs.streaming import transaction
from spark_jobs.streaming.stop_channel import StopChannel
from spark_jobs.streaming.transaction import Transaction
from tests.infra import KAFKA, VAR, Server
from tests.integration.kafka_ends import end_offset
from tests.waiting import LIMIT_SECONDS, wait_until

PARTITIONS = 4
KEYS = 400


class Slots:
    """Lane tasks that copy one topic to another."""

    def __init__(self, source: str, target: str) -> None:
        self.source, self.target = source, target
        self._running: dict[int, tuple[subprocess.Popen[bytes], StopChannel]] = {}
        self._replaced: list[tuple[subprocess.Popen[bytes], StopChannel]] = []
        self.log = VAR / f"{source}.log"

    def start(self, slot: int) -> None:
        channel = StopChannel("127.0.0.1", platform_settings().service_token)
        command = [sys.executable, "-m", "tests.integration.data_plane.lane_process", self.source, self.target]
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
        return process.wait(LIMIT_SECONDS)

    def replace(self, slot: int) -> subprocess.Popen[bytes]:
        """Starts the slot's successor; returns the predecessor, which still runs."""
        process, channel = self._running.pop(slot)
        self._replaced.append((process, channel))
        self.start(slot)
        return process

    def signal(self, slot: int, number: signal.Signals) -> None:
        self._running[slot][0].send_signal(number)

    def progress(self, slot: int) -> dict[str, Any]:
        """What its task last reported."""
        report = self._running[slot][1].report(slot)
        return report.progress if report is not None else {}

    def alive(self) -> list[int]:
        return [slot for slot, (process, _) in self._running.items() if process.poll() is None]

    def have_committed_all(self) -> bool:
        """Whether the tasks are done with every message of the source."""
        positions = Positions(platform_settings().kafka)
        try:
            ends = positions.ends([self.source])
            return positions.passed(positions.committed(f"headrace-test-{self.source}", ends), ends)
        except KafkaException:
            return False  # Kafka elects leaders anew after a stall
        finally:
            positions.close()

    def kill_all(self) -> None:
        for slot in list(self._running):
            self.kill(slot)
        for process, channel in self._replaced:
            process.kill()
            process.wait()
            channel.stop()


@pytest.fixture
def slots(kafka: Server, empty_configuration: None) -> Iterator[Slots]:
    source, target = f"in-{uuid.uuid4()}", f"out-{uuid.uuid4()}"
    admin = AdminClient({"bootstrap.servers": KAFKA})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in (source, target)]).values():
        future.result()
    started = Slots(source, target)
    yield started
    if started.log.exists():  # a test may start no task
        print(started.log.read_text()[-10_000:])  # shown if the test fails
    started.kill_all()


def send(topic: str, first: int, last: int, /, **extra: str) -> list[str]:
    """The ids of the messages. ``extra`` are headers."""
    producer = Producer({"bootstrap.servers": KAFKA, "enable.idempotence": True, "linger.ms": 5})
    ids = []
    for number in range(first, last):
        message_id = new_message_id()
        body = str(number).encode()
        key = str(number % KEYS).encode()
        message = Message(message_id, "p", 1, key, body, "text/plain", utc_now(), ("next",), extra)
        producer.produce(topic, body, key, partition=number % PARTITIONS, headers=message.headers())
        producer.poll(0)
        ids.append(message_id)
    assert producer.flush(LIMIT_SECONDS) == 0
    return ids


def dead_letters(ids: list[str]) -> dict[str, dict[str, bytes]]:
    """Headers and ``body`` of those dead letters."""
    consumer = Consumer(
        {"bootstrap.servers": KAFKA, "group.id": str(uuid.uuid4()), "isolation.level": "read_committed"}
    )
    consumer.assign([TopicPartition(routing.DEAD_LETTER, 0, 0)])
    letters: dict[str, dict[str, bytes]] = {}
    deadline = time.monotonic() + LIMIT_SECONDS
    while len(letters) < len(ids) and time.monotonic() < deadline:
        for record in consumer.consume(100, 0.2):
            headers: dict[str, bytes] = dict(record.headers() or [])  # type: ignore[arg-type]
            message_id = headers.get(names.MESSAGE_ID, b"").decode()
            if message_id in ids:
                assert message_id not in letters
                letters[message_id] = headers | {"body": record.value() or b""}  # type: ignore[dict-item]
    consumer.close()
    return letters


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
        self._topic = topic
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        self._ends: dict[int, int] = {}
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
                self._ends[record.partition()] = record.offset()  # type: ignore[index, assignment]
        return len(self.numbers)

    def read_to_the_end(self) -> None:
        """Everything that has been written by now, and is committed or aborted."""
        ends = {partition: end_offset(self._topic, partition) for partition in range(PARTITIONS)}

        def is_read() -> bool:
            self.read()
            return all(self._ends.get(partition, 0) >= end for partition, end in ends.items())

        wait_until(is_read, interval=0)

    def wait_for(self, count: int, timeout: float = LIMIT_SECONDS) -> None:
        wait_until(lambda: self.read() >= count, timeout, 0)

    def close(self) -> None:
        self._consumer.close()


def assert_all_once_and_in_order(slots: Slots, copied: Copied, count: int) -> None:
    # Whatever they write, duplicates, too, has been written then.
    wait_until(slots.have_committed_all)
    assert_once_and_in_order(copied, count)


def assert_once_and_in_order(copied: Copied, count: int) -> None:
    copied.read_to_the_end()
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
    assert_all_once_and_in_order(slots, copied, 12000)


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
    assert_all_once_and_in_order(slots, copied, 1000 * (times + 1))


def test_it_goes_on_after_a_stall_longer_than_a_transaction_may_take(
    slots: Slots, kafka: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer, too, than the ten seconds after which Kafka looks for transactions to abort.
    monkeypatch.setenv("TEST_TRANSACTION_SECONDS", "6")
    stall_in_a_transaction(slots, kafka, 13)


@pytest.mark.long
def test_it_goes_on_after_a_stall_longer_than_a_real_transaction_may_take(slots: Slots, kafka: Server) -> None:
    stall_in_a_transaction(slots, kafka, 35)


def stall_in_a_transaction(slots: Slots, kafka: Server, seconds: float) -> None:
    copied = Copied(slots.target)
    slots.start(0)
    send(slots.source, 0, 1000)
    copied.wait_for(200)
    assert kafka.process is not None
    os.kill(kafka.process.pid, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(kafka.process.pid, signal.SIGCONT)
    wait_for_copies_after_a_stall(slots, copied, 1000)
    assert_all_once_and_in_order(slots, copied, 1000)


def wait_for_copies_after_a_stall(slots: Slots, copied: "Copied", count: int) -> None:
    def all_copied() -> bool:
        # Kafka may take the task's repeated request to join for that of a successor, and then fences the task. It ends,
        # and Spark starts it again.
        if not slots.alive():
            slots.kill(0)
            slots.start(0)
        return copied.read() >= count

    wait_until(all_copied, 180, 0)  # a task that is fenced is started again, perhaps on a busy machine


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"bytes": str(limits.TOPIC_BYTES + 1)}, "too_large"),  # the client refuses it
        ({"bytes": "800000"}, "too_large"),  # the broker refuses it
        ({"topic": "missing-topic", "copies": "3"}, "refused_by_kafka"),
        ({"topic": "not a topic"}, "refused_by_kafka"),
        ({"defect": "s3cret"}, "internal"),
    ],
    ids=["client", "broker", "missing topic", "invalid topic", "defect"],
)
def test_neighbours_2_what_cannot_be_handled_becomes_a_dead_letter_and_nobody_else_waits(
    slots: Slots, pipeline_topics: None, headers: dict[str, str], reason: str
) -> None:
    limit_messages(slots.target, 500_000)
    copied = Copied(slots.target)
    slots.start(0)
    send(slots.source, 0, 1000)
    ids = send(slots.source, 5000, 5003, **headers)
    send(slots.source, 1000, 2000)
    copied.wait_for(2000)
    letters = dead_letters(ids)
    assert slots.alive() == [0], slots.log.read_text()[-3000:]
    assert_all_once_and_in_order(slots, copied, 2000)
    assert [letters[id]["body"] for id in ids] == [b"5000", b"5001", b"5002"]
    assert {letters[id][names.DEAD_REASON].decode() for id in ids} == {reason}
    assert not any(b"s3cret" in letters[id][names.DEAD_ERROR] for id in ids)


def test_batches_above_the_limit_of_a_topic_are_made_smaller(slots: Slots, pipeline_topics: None) -> None:
    limit_messages(slots.target, 20_000)
    copied = Copied(slots.target)
    send(slots.source, 0, 2000, random="".join(random.choices(string.ascii_letters, k=2000)))
    slots.start(0)
    copied.wait_for(2000)
    assert slots.alive() == [0], slots.log.read_text()[-3000:]
    assert_all_once_and_in_order(slots, copied, 2000)


def limit_messages(topic: str, size: int) -> None:
    """Lowers the topic's limit for batches below that of the producers, as an operator may."""
    admin = AdminClient({"bootstrap.servers": KAFKA})
    limit = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[limit])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()


def test_a_full_window_is_reported_until_there_is_room(slots: Slots) -> None:
    copied = Copied(slots.target)
    slots.start(0)
    room = VAR / slots.source
    send(slots.source, 0, 2500, until=str(room))
    wait_until(lambda: slots.progress(0).get("held_back", 0) > 1)
    assert slots.progress(0)["oldest"] > 1
    room.touch()
    copied.wait_for(2500)
    wait_until(lambda: slots.progress(0)["held_back"] == slots.progress(0)["oldest"] == 0)
    assert_all_once_and_in_order(slots, copied, 2500)


def test_partitions_that_are_lost_while_the_window_is_full_are_read_again(slots: Slots, kafka: Server) -> None:
    copied = Copied(slots.target)
    slots.start(0)
    room = VAR / slots.source
    send(slots.source, 0, 2500, until=str(room))
    wait_until(lambda: slots.progress(0).get("held_back", 0) > 1)
    assert kafka.process is not None
    os.kill(kafka.process.pid, signal.SIGSTOP)
    wait_until(lambda: "Lost: " in slots.log.read_text())
    room.touch()
    wait_until(lambda: slots.progress(0)["held_back"] == 0)
    os.kill(kafka.process.pid, signal.SIGCONT)
    wait_for_copies_after_a_stall(slots, copied, 2500)
    assert_all_once_and_in_order(slots, copied, 2500)


def test_messages_that_are_deleted_before_a_running_task_has_read_them_are_reported(slots: Slots) -> None:
    copied = Copied(slots.target)
    slots.start(0)
    send(slots.source, 0, 1000)
    copied.wait_for(1000)
    slots.signal(0, signal.SIGSTOP)
    try:
        # Kafka answers a fetch of the stopped task that still waits with these, not with what is deleted.
        send(slots.source, 1000, 1000 + PARTITIONS)
        send(slots.source, 1000 + PARTITIONS, 5000)
        admin = AdminClient({"bootstrap.servers": KAFKA})
        before = [TopicPartition(slots.source, partition, 1000) for partition in range(PARTITIONS)]
        for future in admin.delete_records(before).values():
            future.result()
    finally:
        slots.signal(0, signal.SIGCONT)
    send(slots.source, 5000, 6000)
    wait_until(lambda: len(slots.progress(0).get("losses", ())) == PARTITIONS)
    lost = sum(count for _, _, count in slots.progress(0)["losses"])
    assert lost > 1000
    copied.wait_for(6000 - lost)
    assert slots.alive() == [0], slots.log.read_text()[-3000:]
    copied.close()
    assert len(set(copied.numbers)) == len(copied.numbers) == 6000 - lost


def test_a_successor_ends_a_task_that_still_runs(slots: Slots) -> None:
    copied = Copied(slots.target)
    slots.start(0)
    send(slots.source, 0, 3000)
    copied.wait_for(500)
    predecessor = slots.replace(0)
    send(slots.source, 3000, 6000)
    wait_until(lambda: predecessor.poll() is not None)
    assert predecessor.returncode != 0
    send(slots.source, 6000, 9000)
    copied.wait_for(9000)
    assert slots.alive() == [0], slots.log.read_text()[-3000:]
    assert_all_once_and_in_order(slots, copied, 9000)


def test_neighbours_2_a_task_whose_commits_have_ended_does_not_wait_for_its_window(slots: Slots) -> None:
    copied = Copied(slots.target)
    slots.start(0)
    send(slots.source, 0, 1000)
    copied.wait_for(1000)
    send(slots.source, 1000, 1010, seconds="600")
    send(slots.source, 1010, 1011, **{"commits-fail": "yes"})
    wait_until(lambda: slots.alive() == [], explain=lambda: slots.log.read_text()[-3000:])
    copied.close()


class _AnswerLost(Producer):
    """Commits, but its caller learns of the first commit only that the connection was lost for good."""

    lost = False

    def commit_transaction(self, *arguments: Any) -> None:
        super().commit_transaction(*arguments)
        if not _AnswerLost.lost:
            _AnswerLost.lost = True
            raise KafkaException(KafkaError(KafkaError._FENCED, "The answer was lost.", True))


def test_a_commit_whose_answer_is_lost_is_not_repeated(slots: Slots, monkeypatch: pytest.MonkeyPatch) -> None:
    write_three_with(_AnswerLost, slots, monkeypatch)
    assert _AnswerLost.lost


def write_three_with(producer: type[Producer], slots: Slots, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes three records, each with an offset in a transaction of its own, and each exactly once."""
    monkeypatch.setattr(transaction, "Producer", producer)
    group = Consumer({"bootstrap.servers": KAFKA, "group.id": slots.source, "isolation.level": "read_committed"})
    group.subscribe([slots.source])
    wait_until(lambda: group.poll(0.1) is None and len(group.assignment()) == PARTITIONS)
    writer = transaction.TransactionalWriter(
        platform_settings().kafka, slots.source, slots.source, group.consumer_group_metadata, threading.Event()
    )
    writer.open()
    copied = Copied(slots.target)
    for number in range(3):
        record = Record(slots.target, b"k", str(number).encode(), [])
        offset = TopicPartition(slots.source, 0, number + 1, metadata=f"after {number}")
        writer.commit(lambda r=record, o=offset: Transaction([r], [o]), lambda *_: None)  # type: ignore[misc]
    copied.wait_for(3)
    assert_once_and_in_order(copied, 3)
    group.close()


def test_a_writer_forgets_the_topics_that_it_no_longer_writes_to(slots: Slots, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "_TOPIC_SECONDS", 0.0)
    kafka = platform_settings().kafka
    writer = transaction.TransactionalWriter(kafka, slots.source, slots.source, lambda: None, threading.Event())
    writer.open()
    for topic in (slots.source, slots.target):
        assert writer._topic_error(topic) is None
    assert len(writer._topics) == 0


class _AbortFails(Producer):
    """Its first transaction has to be aborted, which then fails for good, as after the death of a broker."""

    aborts = 0

    def send_offsets_to_transaction(self, *arguments: Any) -> None:
        super().send_offsets_to_transaction(*arguments)
        if not _AbortFails.aborts:
            raise KafkaException(KafkaError(KafkaError.ILLEGAL_GENERATION, "Rebalanced.", False, False, True))

    def abort_transaction(self, *arguments: Any) -> None:
        _AbortFails.aborts += 1
        raise KafkaException(KafkaError(KafkaError.INVALID_TXN_STATE, "No transaction to abort.", True))


def test_neighbours_2_an_abort_that_fails_for_good_makes_a_new_producer(
    slots: Slots, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_three_with(_AbortFails, slots, monkeypatch)
    assert _AbortFails.aborts == 1


class _CommitGivenUp(Producer):
    """Its first commit is given up while it is under way, as one is that lasts longer than a task may take to stop."""

    given_up = False

    def commit_transaction(self, *arguments: Any) -> None:
        if _CommitGivenUp.given_up:
            super().commit_transaction(*arguments)
            return
        _CommitGivenUp.given_up = True
        with pytest.raises(KafkaException) as raised:
            super().commit_transaction(0.0)
        timed_out = raised.value.args[0]
        assert timed_out.retriable()
        raise KafkaException(KafkaError(timed_out.code(), timed_out.str(), False, False))


def test_neighbours_2_a_commit_that_is_given_up_makes_a_new_producer(
    slots: Slots, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_three_with(_CommitGivenUp, slots, monkeypatch)
    assert _CommitGivenUp.given_up
