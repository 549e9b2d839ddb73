"""Whether messages wait for a stage that rests, by a real Kafka: markers of transactions are no messages."""

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from backend.domain.stages import Form, Stage
from backend.settings import KafkaSettings, platform_settings
from spark_jobs.unhandled import Unhandled, UnhandledWatch
from tests.infra import KAFKA, Server
from tests.integration.kafka_ends import end_offset
from tests.waiting import LIMIT_SECONDS, wait_until

PARTITIONS = 2


@pytest.fixture
def stage(kafka: Server) -> Stage:
    name = f"unhandled-{uuid.uuid4()}"
    admin = AdminClient({"bootstrap.servers": KAFKA})  # one that is garbage-collected cancels its requests
    [made] = admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values()
    made.result()
    for partition in range(PARTITIONS):
        end_offset(name, partition)
    return Stage(name, Form.LANE, priority=1, topic=name)


@pytest.fixture
def unhandled(kafka: Server) -> Iterator[Unhandled]:
    made = Unhandled(platform_settings().kafka)
    yield made
    made.close()


def transaction() -> Producer:
    producer = Producer({"bootstrap.servers": KAFKA, "transactional.id": str(uuid.uuid4())})
    producer.init_transactions(LIMIT_SECONDS)
    producer.begin_transaction()
    return producer


def put(stage: Stage, partition: int = 0) -> None:
    assert stage.topic
    producer = transaction()
    producer.produce(stage.topic, b"{}", partition=partition)
    producer.commit_transaction(LIMIT_SECONDS)


def handle(stage: Stage, offset: int, partition: int = 0) -> None:
    """The stage has handled what is before the offset."""
    assert stage.topic
    consumer = Consumer({"bootstrap.servers": KAFKA, "group.id": stage.group})
    consumer.commit(offsets=[TopicPartition(stage.topic, partition, offset)], asynchronous=False)
    consumer.close()


def test_a_topic_that_nobody_has_written_to_holds_nothing(unhandled: Unhandled, stage: Stage) -> None:
    missing = Stage("missing", Form.LANE, priority=1, topic="missing")
    assert unhandled.look([stage, missing]) == {stage: False, missing: False}


def test_a_message_in_any_partition_waits_until_it_is_handled(unhandled: Unhandled, stage: Stage) -> None:
    put(stage, partition=1)
    # Kafka writes the markers of a transaction after it has confirmed the commit.
    wait_until(lambda: unhandled.look([stage]) == {stage: True})
    handle(stage, 1, partition=1)
    assert unhandled.look([stage]) == {stage: False}
    put(stage, partition=1)
    wait_until(lambda: unhandled.look([stage]) == {stage: True})


def test_the_marker_of_a_transaction_is_no_message_and_is_looked_at_once(
    unhandled: Unhandled, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(stage)
    handle(stage, 1)
    topic = stage.topic
    assert topic
    wait_until(lambda: end_offset(topic) == 2)  # the message, and the marker
    assert unhandled.look([stage]) == {stage: False}

    def asked(*_: object) -> None:
        pytest.fail("Kafka was asked again although nothing has come.")

    monkeypatch.setattr(unhandled._positions, "committed", asked)
    assert unhandled.look([stage]) == {stage: False}


def test_what_was_rolled_back_and_what_is_not_committed_yet_does_not_wait(unhandled: Unhandled, stage: Stage) -> None:
    assert stage.topic
    aborted = transaction()
    aborted.produce(stage.topic, b"{}", partition=0)
    assert aborted.flush(LIMIT_SECONDS) == 0
    aborted.abort_transaction(LIMIT_SECONDS)
    assert unhandled.look([stage]) == {stage: False}
    under_way = transaction()
    under_way.produce(stage.topic, b"{}", partition=0)
    assert under_way.flush(LIMIT_SECONDS) == 0
    assert unhandled.look([stage]) == {stage: False}
    under_way.commit_transaction(LIMIT_SECONDS)
    wait_until(lambda: unhandled.look([stage]) == {stage: True})


def test_a_kafka_that_does_not_answer_says_nothing() -> None:
    nowhere = Unhandled(KafkaSettings(bootstrap_servers="127.0.0.1:1"))
    try:
        with pytest.raises(KafkaException):
            nowhere.look([Stage("x", Form.LANE, priority=1, topic="x")])
    finally:
        nowhere.close()


def test_what_was_found_is_forgotten_once_it_is_not_watched(stage: Stage) -> None:
    watch = UnhandledWatch(platform_settings().kafka)
    watch.start()
    try:
        watch.watch([stage])
        wait_until(lambda: watch.found == {stage: False})
        put(stage)
        wait_until(lambda: watch.found == {stage: True})
        watch.watch([])
        wait_until(lambda: watch.found == {})
    finally:
        watch.stop()
