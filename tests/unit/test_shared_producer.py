"""The room for unacknowledged records, which senders share."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.records import Record
from backend.kafka.client import shared_producer
from backend.kafka.client.shared_producer import ProducerShare, SharedProducer
from tests.waiting import LIMIT_SECONDS

ROOM = 800
"""Of which each sender has 100 bytes, unless there are more than eight."""


class Kafka:
    """Acknowledges when it is told to. Records have names as their values, padded with dots."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, asyncio.Future[None]]] = []
        self.refuses = False

    async def send_all(self, records: Sequence[Record]) -> asyncio.Future[None]:
        if self.refuses:
            raise failure()
        acknowledged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if records:
            self.sent.append(("".join(record.value.decode().strip(".") for record in records), acknowledged))
        else:
            acknowledged.set_result(None)
        return acknowledged

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.sent]

    def acknowledge(self, name: str, error: KafkaException | None = None) -> None:
        acknowledged = dict(self.sent)[name]
        if error is None:
            acknowledged.set_result(None)
        else:
            acknowledged.set_exception(error)


def failure() -> KafkaException:
    return KafkaException(KafkaError(KafkaError._MSG_TIMED_OUT))


def record(name: str, size: int = 40) -> Record:
    return Record("topic", None, name.encode().ljust(size, b"."), [])


@pytest.fixture(autouse=True)
def _one_record_is_a_portion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_producer, "_PORTION_BYTES", 1)


def senders(count: int) -> tuple[Kafka, list[ProducerShare]]:
    kafka = Kafka()
    shared = SharedProducer(cast(Any, kafka), ROOM)
    return kafka, [shared.share() for _ in range(count)]


async def settled() -> None:
    """Everything has been done that waits for nothing from outside."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_what_a_slow_sender_has_not_got_acknowledged_stops_no_other() -> None:
    kafka, [slow, quick] = senders(2)
    sending = asyncio.create_task(slow.send_all([record(name) for name in "abcdefghijklmnopqrstuvwx"]))
    await settled()
    assert kafka.names == ["a", "b"]
    assert not sending.done()
    async with asyncio.timeout(LIMIT_SECONDS):
        acknowledged = await quick.send_all([record("Z")])
    kafka.acknowledge("Z")
    await acknowledged
    assert kafka.names == ["a", "b", "Z"]
    sending.cancel()


async def test_a_sender_goes_on_in_order_as_its_records_are_acknowledged() -> None:
    kafka, [share] = senders(1)
    sending = asyncio.create_task(share.send_all([record(name) for name in "abcd"]))
    await settled()
    for acknowledged, sent in (("b", "abc"), ("a", "abcd")):
        kafka.acknowledge(acknowledged)
        await settled()
        assert "".join(kafka.names) == sent
    together = await sending
    kafka.acknowledge("c")
    await settled()
    assert not together.done()
    kafka.acknowledge("d")
    await together


async def test_a_record_that_is_larger_than_the_share_is_sent_by_itself() -> None:
    kafka, [share] = senders(1)
    sending = asyncio.create_task(share.send_all([record("a"), record("large", 5000), record("b")]))
    for name in ("a", "large", "b"):
        await settled()
        assert kafka.names[-1] == name
        kafka.acknowledge(name)
    await (await sending)


async def test_many_senders_have_less_each_until_the_others_are_done() -> None:
    kafka, shares = senders(16)
    for index, share in enumerate(shares):
        await share.send_all([record(f"first{index}")])
    sending = asyncio.create_task(shares[0].send_all([record("second")]))
    await settled()
    assert "second" not in kafka.names  # 50 bytes for each of 16, and 40 are on the way
    for index in range(16):
        kafka.acknowledge(f"first{index}")
    await sending
    assert kafka.names[-1] == "second"


async def test_a_failure_is_told_once_all_answers_are_known_and_makes_room() -> None:
    kafka, [share] = senders(1)
    together = await share.send_all([record("a"), record("b")])
    kafka.acknowledge("a", failure())
    await settled()
    assert not together.done()
    kafka.acknowledge("b")
    with pytest.raises(KafkaException):
        await together
    async with asyncio.timeout(LIMIT_SECONDS):
        await share.send_all([record("c"), record("d")])


async def test_what_is_refused_immediately_or_cancelled_takes_no_room() -> None:
    kafka, [share] = senders(1)
    kafka.refuses = True
    for _ in range(3):
        with pytest.raises(KafkaException):
            await share.send_all([record("a", 90)])
    kafka.refuses = False
    (await share.send_all([record("b", 90)])).cancel()
    await settled()
    async with asyncio.timeout(LIMIT_SECONDS):
        await share.send_all([record("c", 90)])


async def test_nothing_is_acknowledged_at_once() -> None:
    _, [share] = senders(1)
    assert (await share.send_all([])).done()


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(1, 100))
def test_portions_are_all_records_in_order_and_only_one_record_exceeds_them(sizes: list[int], most: int) -> None:
    records = [record(str(index % 10), size) for index, size in enumerate(sizes)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_producer, "_PORTION_BYTES", most)
        portions = list(shared_producer._portions(records))
    assert [one for portion, _ in portions for one in portion] == records
    for portion, size in portions:
        assert size == sum(one.size for one in portion)
        assert size <= most or len(portion) == 1
