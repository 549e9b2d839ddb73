"""Kafka's producer, which sends many records at once."""

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from backend.domain.records import Record
from backend.kafka.client.ends import end_offsets
from backend.kafka.client.producer import AsyncProducer
from tests.infra import KAFKA, Server
from tests.ports import free_ports
from tests.waiting import LIMIT_SECONDS

_ROOM = 10


@pytest.fixture
async def topic(kafka: Server) -> str:
    name = f"produced-{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": KAFKA})
    await asyncio.to_thread(admin.create_topics([NewTopic(name, 2, 1)])[name].result)
    return name


@pytest.fixture
async def producer() -> AsyncIterator[AsyncProducer]:
    """With room for a few records in its local queue."""
    producer = AsyncProducer({"bootstrap.servers": KAFKA, "queue.buffering.max.messages": _ROOM})
    yield producer
    await producer.close()


def records(topic: str, count: int, value: bytes = b"{}") -> list[Record]:
    return [Record(topic, str(number).encode(), value, [("n", b"1")]) for number in range(count)]


async def test_more_records_than_the_queue_holds_wait_for_room(topic: str, producer: AsyncProducer) -> None:
    acknowledged = await producer.send_all(records(topic, 20 * _ROOM))
    await acknowledged
    ends = await asyncio.to_thread(end_offsets, AdminClient({"bootstrap.servers": KAFKA}), {topic})
    assert sum(ends.values()) == 20 * _ROOM


async def test_nothing_is_acknowledged_without_delay(producer: AsyncProducer) -> None:
    assert (await producer.send_all([])).done()


async def test_one_record_that_is_not_acknowledged_fails_all(topic: str, producer: AsyncProducer) -> None:
    unknown = records(f"no-such-topic-{uuid.uuid4().hex}", 1)
    acknowledged = await producer.send_all([*records(topic, 2), *unknown, *records(topic, 2)])
    with pytest.raises(KafkaException):
        await acknowledged


async def test_a_record_that_is_too_large_is_refused_immediately(topic: str, producer: AsyncProducer) -> None:
    with pytest.raises(KafkaException):
        await producer.send_all(records(topic, 1, b"x" * 2_000_000))


async def test_what_is_not_acknowledged_before_the_producer_is_closed_fails() -> None:
    [closed_port] = free_ports(1)
    producer = AsyncProducer({"bootstrap.servers": f"127.0.0.1:{closed_port}"})
    one = producer.send("orders", key=None, value=b"{}", headers=[])
    together = await producer.send_all(records("orders", 2))
    await producer.close(timeout=0.1)
    for unacknowledged in (one, together):
        with pytest.raises(KafkaException):
            await asyncio.wait_for(unacknowledged, LIMIT_SECONDS)
