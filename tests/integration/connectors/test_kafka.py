"""The Kafka connector, against a real broker."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, closing
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from msgspec.structs import replace

from backend.delivery.client import DeliveryClient
from backend.domain import json
from backend.domain.capabilities import DeliveryError
from backend.domain.message import Message, SourceHeader, new_message_id, source_fields
from backend.domain.reasons import Reason
from tests import infra
from tests.infra import KAFKA
from tests.integration.connectors.suites import DeliverSuite, ReadStreamSuite, Server, Source, opened
from tests.integration.connectors.suites.common import message
from tests.integration.kafka_ends import end_offset
from tests.topics import records_of
from tests.waiting import LIMIT_SECONDS, PATIENCE, wait_until, wait_until_async


class Topic(Server):
    async def delivered(self) -> list[bytes]:
        records = await asyncio.to_thread(records_of, self.options["topic"])
        return [record.value() for record in records]  # type: ignore[misc]


async def make_topic(partitions: int = 1, **config: str) -> str:
    topic = f"connector-{new_message_id()}"
    admin = AdminClient({"bootstrap.servers": KAFKA})
    await asyncio.to_thread(admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result)
    for partition in range(partitions):  # an output gives up after three seconds without a leader
        await asyncio.to_thread(end_offset, topic, partition)
    return topic


class _Kafka:
    type = "kafka"

    @pytest.fixture(autouse=True)
    def _broker(self, kafka: infra.Server) -> None:
        """Runs before every test of the suite."""

    def unreachable(self) -> dict[str, Any]:
        security = {"type": "sasl", "username": "u", "password": "planted-password-of-kafka"}
        return {"bootstrap_servers": "127.0.0.1:1", "security": security}


class TestKafka(_Kafka, DeliverSuite):
    @asynccontextmanager
    async def server(self, *, hangs: bool = False) -> AsyncIterator[Server]:
        if hangs:
            with socket.create_server(("127.0.0.1", 0)) as silent:
                port = silent.getsockname()[1]
                yield Topic({"bootstrap_servers": f"127.0.0.1:{port}"}, {"topic": "hangs"})
            return
        yield Topic({"bootstrap_servers": KAFKA}, {"topic": await make_topic()})

    async def test_a_field_is_written_to_the_topic_that_the_message_names(self) -> None:
        topic = await make_topic()
        server = Topic({"bootstrap_servers": KAFKA}, {"topic": topic})
        prefix, _, table = topic.partition("-")
        client = self.client(server.connection, {"topic": f"{prefix}-{{{{table}}}}", "value": "after"})
        for document in ({"after": {"id": 1}}, {"after": None}, {}):
            await client.deliver_one(message(json.dumps(document | {"table": table})))
        for body in (b'{"table": "a/b"}', b'{"after": 1}', b"no JSON"):
            with pytest.raises(DeliveryError) as refused:
                await client.deliver_one(message(body))
            assert (refused.value.retryable, refused.value.about_message) == (False, True)
        await client.close()
        assert await server.delivered() == [b'{"id":1}', None, None]

    @pytest.mark.parametrize("kept", [True, False])
    async def test_a_record_that_was_read_keeps_its_headers(self, kept: bool) -> None:
        headers: list[SourceHeader] = [
            ("tenant", b"a"),
            ("tenant", b"b\xff"),
            ("empty", None),
            ("Message-Id", b"theirs"),
        ]
        read = replace(message(), extra=source_fields("orders", headers))
        server = Topic({"bootstrap_servers": KAFKA}, {"topic": await make_topic()})
        client = self.client(server.connection, server.options | {"keep_headers": kept})
        await client.deliver_one(read)
        await client.close()
        [record] = await asyncio.to_thread(records_of, server.options["topic"])
        own = [("message-id", read.id.encode()), ("content-type", b"application/json")]
        assert record.headers() == own + (headers[:3] if kept else [])

    @pytest.mark.parametrize("knows_the_topic", [True, False])
    async def test_neighbours_8_a_message_is_too_large_only_by_itself(self, knows_the_topic: bool) -> None:
        topic = await make_topic(**{"max.message.bytes": "2000"})
        server = Topic({"bootstrap_servers": KAFKA}, {"topic": topic})
        client = self.client(server.connection, {"topic": topic if knows_the_topic else "{{topic}}"})
        rows = [message(json.dumps({"n": n, "text": "x" * 100, "topic": topic})) for n in range(200)]
        large = message(json.dumps({"text": "x" * 3000, "topic": topic}))
        await client.deliver_one(rows.pop())  # opens it, so that the others are sent at once
        results = await asyncio.gather(*map(client.deliver_one, [*rows, large]), return_exceptions=True)
        await client.close()
        refused = results.pop()
        assert isinstance(refused, DeliveryError)
        assert (refused.retryable, refused.about_message) == (False, True)
        assert [result for result in results if isinstance(result, BaseException)] == []
        assert {json.loads(body)["n"] for body in await server.delivered()} == set(range(200))

    async def test_a_broker_that_stops_is_named_and_written_to_again_when_it_is_back(self, kafka: infra.Server) -> None:
        server = Topic({"bootstrap_servers": KAFKA}, {"topic": await make_topic()})
        client = self.client(server.connection, server.options, timeout_seconds=10.0)
        await client.deliver_one(message(b"1"))
        await asyncio.to_thread(kafka.stop)
        try:
            with pytest.raises(DeliveryError, match=f"Kafka: .*{KAFKA}") as failed:
                await client.deliver_one(message(b"2"))
        finally:
            await asyncio.to_thread(kafka.start)
        assert (failed.value.reason, failed.value.retryable) == (Reason.CONNECTION, True)
        await wait_until_async(partial(_is_delivered, client, message(b"3")))
        await client.close()
        assert await server.delivered() == [b"1", b"3"]


async def _is_delivered(client: DeliveryClient, sent: Message) -> bool:
    try:
        await client.deliver_one(sent)
    except DeliveryError:
        return False
    return True


class WrittenTopic(Source):
    async def write(self, bodies: Sequence[bytes]) -> None:
        await asyncio.to_thread(self._write, bodies)

    def _write(self, bodies: Sequence[bytes | None], **fields: Any) -> None:
        producer = Producer({"bootstrap.servers": KAFKA, "message.max.bytes": 2_000_000})
        for body in bodies:
            producer.produce(self.options["topics"][0], body, **fields)
        assert producer.flush(LIMIT_SECONDS) == 0


class TestKafkaInput(_Kafka, ReadStreamSuite):
    knows_lag = True

    @asynccontextmanager
    async def source(self, *, hangs: bool = False) -> AsyncIterator[WrittenTopic]:
        if hangs:
            with socket.create_server(("127.0.0.1", 0)) as silent:
                port = silent.getsockname()[1]
                yield WrittenTopic({"bootstrap_servers": f"127.0.0.1:{port}"}, {"topics": ["hangs"], "group": "hangs"})
            return
        topic = await make_topic(2)
        yield WrittenTopic({"bootstrap_servers": KAFKA}, {"topics": [topic], "group": f"group-of-{topic}"})

    async def test_a_record_keeps_its_key_and_its_content_type_and_a_tombstone_is_null(self) -> None:
        async with self.source() as source:
            headers = [("Content-Type", b"text/plain; charset=utf-8")]
            await asyncio.to_thread(source._write, ["São Paulo".encode()], key=b"k\xff", headers=headers, partition=1)
            await asyncio.to_thread(source._write, [None], key=b"gone", partition=0)
            records = {record.identity: record for record in await self._read(source, 2)}
            topic = source.options["topics"][0]
            text, gone = records[f"{topic}/1/0"], records[f"{topic}/0/0"]
            assert (text.body, text.key) == ("São Paulo".encode(), b"k\xff")
            assert text.content_type == "text/plain; charset=utf-8"
            assert (gone.body, gone.key, gone.content_type) == (b"null", b"gone", "application/json")
            assert (text.source, list(text.headers), list(gone.headers)) == (topic, headers, [])

    async def test_a_new_group_that_begins_with_the_latest_keeps_its_place_before_the_first_acknowledgement(
        self,
    ) -> None:
        async with self.source() as source:
            source.options["begin"] = "latest"
            await source.write([b'"old"'])
            async with opened(self.reader(source)) as reader:
                reading = asyncio.create_task(anext(reader.stream()))
                await asyncio.to_thread(_wait_for_commit, source.options["group"], source.options["topics"][0])
                reading.cancel()
                await asyncio.wait([reading])
            await source.write([b'"new"'])
            assert [record.body for record in await self._read(source, 1)] == [b'"new"']

    async def test_what_a_killed_member_of_the_group_had_in_hand_is_read_by_the_other_one(self) -> None:
        """The members share the partitions while records come, and the one that is killed has acknowledged nothing."""
        partitions = 4
        topic = await make_topic(partitions)
        source = WrittenTopic({"bootstrap_servers": KAFKA}, {"topics": [topic], "group": f"group-of-{topic}"})
        written: list[bytes] = []
        read: dict[str, bytes] = {}

        async def write_to_all() -> None:
            for partition in range(partitions):
                written.append(b'{"n": %d}' % len(written))
                await asyncio.to_thread(source._write, written[-1:], partition=partition)

        async def keep_reading() -> None:
            async with opened(self.reader(source)) as reader, aclosing(reader.stream()) as stream:
                async for batch in stream:
                    for record in batch.records:
                        assert read.setdefault(record.identity, record.body) == record.body
                    await reader.acknowledge(batch.breakpoint)

        async def everything_is_read() -> bool:
            if reading.done():
                reading.result()  # why it ended
            return sorted(read.values()) == sorted(written)

        reading = asyncio.create_task(keep_reading())
        try:
            await write_to_all()
            await wait_until_async(everything_is_read)
            in_hand, held = await self._killed_with_records_in_hand(source, write_to_all)
            assert set(in_hand) <= set(written)
            assert 0 < len(held) < partitions, "they share the partitions"
            # The last records of its partitions could be read by nobody while it lived.
            assert not {written[partition - partitions] for partition in held} & set(read.values())
            await wait_until_async(everything_is_read)
            assert len(read) == len(written)
            ends = [await asyncio.to_thread(end_offset, topic, partition) for partition in range(partitions)]
            await wait_until_async(lambda: asyncio.to_thread(_has_committed, source.options["group"], topic, ends))
        finally:
            reading.cancel()
            await asyncio.wait([reading])
        async with opened(self.reader(source)) as reader, aclosing(reader.stream()) as stream:
            await write_to_all()
            rest: list[bytes] = []
            while len(rest) < partitions:
                async with asyncio.timeout(LIMIT_SECONDS):
                    rest += [record.body for record in (await anext(stream)).records]
            assert sorted(rest) == sorted(written[-partitions:])

    async def _killed_with_records_in_hand(
        self, source: WrittenTopic, write_to_all: Callable[[], Awaitable[None]]
    ) -> tuple[list[bytes], set[int]]:
        """What another member of the group had read, and not acknowledged, when it was killed, and its partitions. It
        joins while records are written, and the last ones are written while it has its partitions."""
        setting = json.dumps({"type": self.type, "connection": source.connection, "options": source.options})
        member = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.integration.connectors.reader_process",
            setting,
            stdout=asyncio.subprocess.PIPE,
            limit=16 * 1024 * 1024,
        )
        assert member.stdout is not None
        printed = asyncio.create_task(member.stdout.readline())
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                while not printed.done():
                    await write_to_all()
                    await asyncio.wait([printed], timeout=0.2)
                await write_to_all()
        finally:
            member.kill()
            await member.wait()
        batch = json.loads(await printed)
        return [body.encode() for body in batch["bodies"]], {partition for _, partition, _ in batch["breakpoint"]}

    async def test_a_consumer_that_is_closed_refuses_further_calls(self) -> None:
        async with self.source() as source:
            async with opened(self.reader(source)) as reader:
                consumer = reader._consumer  # type: ignore[attr-defined]
            with pytest.raises(RuntimeError, match="closed"):
                await consumer.list_topics(1.0)

    async def test_a_topic_that_is_missing_is_named(self) -> None:
        connection = {"bootstrap_servers": KAFKA}
        failure = await self._failure(connection, {"topics": ["no-such-topic"], "group": "g"})
        assert "no-such-topic" in str(failure)
        assert failure.retryable

    async def test_a_broker_that_stops_is_reported_and_read_again_when_it_is_back(self, kafka: infra.Server) -> None:
        async with self.source() as source:
            await source.write([b"1"])
            async with opened(self.reader(source)) as reader:
                stream = reader.stream()
                first = await anext(stream)
                await reader.acknowledge(first.breakpoint)
                await asyncio.to_thread(kafka.stop)
                try:
                    with pytest.raises(DeliveryError) as failed:
                        async with asyncio.timeout(LIMIT_SECONDS):
                            await anext(stream)
                finally:
                    await asyncio.to_thread(kafka.start)
                assert failed.value.retryable
            await source.write([b"2"])
            # What was acknowledged just before the broker stopped may come once more.
            read: set[bytes] = set()
            async with (
                asyncio.timeout(LIMIT_SECONDS * PATIENCE),
                opened(self.reader(source)) as reader,
                aclosing(reader.stream()) as stream,
            ):
                while b"2" not in read:
                    read |= {record.body for record in (await anext(stream)).records}
            assert read <= {b"1", b"2"}


def _wait_for_commit(group: str, topic: str) -> None:
    consumer = Consumer({"bootstrap.servers": KAFKA, "group.id": group})
    places = [TopicPartition(topic, partition) for partition in range(2)]
    with closing(consumer):
        wait_until(lambda: sum(place.offset for place in consumer.committed(places, timeout=LIMIT_SECONDS)) == 1)


def _has_committed(group: str, topic: str, offsets: Sequence[int]) -> bool:
    """Whether the group's positions are these, by the partition."""
    places = [TopicPartition(topic, partition) for partition in range(len(offsets))]
    with closing(Consumer({"bootstrap.servers": KAFKA, "group.id": group})) as consumer:
        return [place.offset for place in consumer.committed(places, timeout=LIMIT_SECONDS)] == list(offsets)
