"""The RabbitMQ connector, against a real server, with and without TLS."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import aio_pika
import pytest
from msgspec.structs import replace

from backend.connectors.rabbitmq import Rabbitmq, RabbitmqConnection
from backend.domain.capabilities import DeliveryError
from backend.domain.connector import CheckFailedError, check_connection
from backend.domain.message import SourceHeader, new_message_id, source_fields
from tests.integration.connectors.suites import (
    DeliverSuite,
    PrefetchSuite,
    Server,
    Source,
    input_reader,
    message,
    opened,
)
from tests.rabbitmq import AUTHORITY, PASSWORD, PORT, TLS_PORT, URL, USER, port_mapper, rabbitmq_server
from tests.waiting import LIMIT_SECONDS


def connection(port: int = PORT, **fields: Any) -> dict[str, Any]:
    return {"host": "127.0.0.1", "port": port, "username": USER, "password": PASSWORD, **fields}


@pytest.fixture(scope="module", autouse=True)
def _server() -> Iterator[None]:
    mapper, running = port_mapper(), rabbitmq_server()
    mapper.start()
    try:
        running.start()
        yield
    finally:
        running.stop()
        mapper.stop()


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_CONNECT_SECONDS", "_ANSWER_SECONDS", "_IDLE_SECONDS"):
        monkeypatch.setattr(f"backend.connectors.rabbitmq.{name}", 3.0)


@asynccontextmanager
async def direct() -> AsyncIterator[aio_pika.abc.AbstractChannel]:
    async with await aio_pika.connect(URL) as client:
        yield await client.channel()


async def make_queue(**arguments: Any) -> str:
    name = f"q-{new_message_id()}"
    async with direct() as channel:
        await channel.declare_queue(name, durable=True, arguments=arguments)
    return name


async def taken(queue: str) -> list[aio_pika.abc.AbstractIncomingMessage]:
    """Takes everything out of the queue."""
    messages = []
    async with direct() as channel:
        source = await channel.get_queue(queue)
        while (one := await source.get(no_ack=True, fail=False)) is not None:
            messages.append(one)
    return messages


@asynccontextmanager
async def silent() -> AsyncIterator[dict[str, Any]]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield connection(listening.getsockname()[1])


class Relay:
    """A way to the server that can be cut."""

    def __init__(self) -> None:
        self._open: set[asyncio.StreamWriter] = set()
        self._is_cut = False
        self.port = 0

    def cut(self) -> None:
        self._is_cut = True
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()

    def mend(self) -> None:
        self._is_cut = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        there, back = await asyncio.open_connection("127.0.0.1", PORT)
        self._open |= {writer, back}
        await asyncio.gather(self._copy(reader, back), self._copy(there, writer))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await reader.read(65_536):
                writer.write(chunk)
                await writer.drain()
        writer.close()


@asynccontextmanager
async def relay() -> AsyncIterator[Relay]:
    between = Relay()
    async with await asyncio.start_server(between.serve, "127.0.0.1", 0) as listening:
        between.port = listening.sockets[0].getsockname()[1]
        yield between
        between.cut()


class WrittenQueue(Server):
    async def delivered(self) -> list[bytes]:
        return [one.body for one in await taken(self.options["routing_key"])]


class _Rabbitmq:
    type = "rabbitmq"

    def unreachable(self) -> dict[str, Any]:
        return connection(1)


class TestRabbitmq(_Rabbitmq, DeliverSuite):
    @asynccontextmanager
    async def server(self, *, hangs: bool = False) -> AsyncIterator[Server]:
        options = {"routing_key": await make_queue()}
        if not hangs:
            yield WrittenQueue(connection(), options)
            return
        async with silent() as hanging:
            yield WrittenQueue(hanging, options)

    async def deliver(self, body: bytes, options: dict[str, Any]) -> Any:
        client = self.client(connection(), options)
        sent = message(body)
        try:
            await client.deliver_one(sent)
        finally:
            await client.close()
        return sent

    async def test_an_exchange_routes_by_what_is_in_the_message(self) -> None:
        exchange, queue = f"e-{new_message_id()}", await make_queue()
        async with direct() as channel:
            declared = await channel.declare_exchange(exchange, aio_pika.ExchangeType.TOPIC)
            await (await channel.get_queue(queue)).bind(declared, "orders.*.São Paulo")
        options = {"exchange": exchange, "routing_key": "orders.{{order.id}}.{{city}}"}
        sent = await self.deliver('{"order": {"id": 7}, "city": "São Paulo"}'.encode(), options)
        [one] = await taken(queue)
        assert one.routing_key == "orders.7.São Paulo"
        assert one.message_id == one.headers["message-id"] == sent.id
        assert one.content_type == "application/json"
        assert one.delivery_mode == aio_pika.DeliveryMode.PERSISTENT

    @pytest.mark.parametrize("kept", [True, False])
    async def test_a_record_that_was_read_keeps_its_headers(self, kept: bool) -> None:
        queue = await make_queue()
        headers: list[SourceHeader] = [
            ("tenant", b"a"),
            ("tenant", "São".encode()),
            ("empty", None),
            ("binary", b"\xff"),
            ("Message-Id", b"theirs"),
            ("CC", b"elsewhere"),
            ("x" * 256, b"x"),
            ("correlation-id", b"c-1"),
            ("reply-to", b"amq.rabbitmq.reply-to"),
            ("timestamp", b"2026-02-03T04:05:06Z"),
        ]
        client = self.client(connection(), {"routing_key": queue, "keep_headers": kept})
        sent = replace(message(), extra=source_fields("orders", headers))
        await client.deliver_one(sent)
        await client.close()
        [one] = await taken(queue)
        theirs = {
            "tenant": "São",
            "empty": None,
            "binary": b"\xff",
            "correlation-id": "c-1",
            "reply-to": "amq.rabbitmq.reply-to",
            "timestamp": "2026-02-03T04:05:06Z",
        }
        assert one.headers == {"message-id": sent.id} | (theirs if kept else {})
        assert (one.message_id, one.correlation_id, one.reply_to) == (sent.id, "c-1" if kept else None, None)
        assert one.timestamp == (datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC) if kept else None)

    async def test_a_message_that_no_queue_takes_fails_unless_that_is_intended(self) -> None:
        with pytest.raises(DeliveryError, match="no queue is bound") as failed:
            await self.deliver(b"{}", {"routing_key": "nobody"})
        assert failed.value.retryable
        await self.deliver(b"{}", {"routing_key": "nobody", "require_queue": False})

    async def test_a_full_queue_is_a_transient_fault(self) -> None:
        queue = await make_queue(**{"x-max-length": 1, "x-overflow": "reject-publish"})
        await self.deliver(b"1", {"routing_key": queue})
        with pytest.raises(DeliveryError, match="queue is full") as failed:
            await self.deliver(b"2", {"routing_key": queue})
        assert failed.value.retryable
        assert [one.body for one in await taken(queue)] == [b"1"]

    async def test_a_missing_exchange_is_named_and_does_not_break_the_client(self) -> None:
        queue, exchange = await make_queue(), f"e-{new_message_id()}"
        client = self.client(connection(), {"exchange": exchange, "routing_key": "x"})
        with pytest.raises(DeliveryError, match="no exchange") as failed:
            await client.deliver_one(message(b"1"))
        assert failed.value.retryable
        async with direct() as channel:
            declared = await channel.declare_exchange(exchange, aio_pika.ExchangeType.FANOUT)
            await (await channel.get_queue(queue)).bind(declared)
        await client.deliver_one(message(b"2"))
        await client.close()
        assert [one.body for one in await taken(queue)] == [b"2"]

    @pytest.mark.parametrize("value", ["null", "[]", '"' + "x" * 300 + '"'])
    async def test_a_value_that_is_no_routing_key_is_the_messages_fault(self, value: str) -> None:
        with pytest.raises(DeliveryError) as failed:
            await self.deliver(b'{"v": %s}' % value.encode(), {"routing_key": "{{v}}"})
        assert failed.value.about_message

    async def test_a_connection_that_was_lost_is_opened_again(self) -> None:
        async with self.server() as written, relay() as between:
            client = self.client(connection(between.port), written.options)
            await client.deliver_one(message(b"1"))
            between.cut()
            with pytest.raises(DeliveryError) as failed:
                await client.deliver_one(message(b"2"))
            assert failed.value.retryable
            between.mend()
            await client.deliver_one(message(b"3"))
            await client.close()
            assert await written.delivered() == [b"1", b"3"]

    async def test_the_connection_test_names_the_field_at_fault(self) -> None:
        assert (await check(connection())).startswith("Connected to RabbitMQ 3.")
        for field, wrong in {
            "password": connection(password="wrong"),
            "host": connection(host="unknown.invalid"),
            "virtual_host": connection(virtual_host="absent"),
            "tls": connection(TLS_PORT, tls={"type": "tls"}),
        }.items():
            with pytest.raises(CheckFailedError) as failed:
                await check(wrong)
            assert failed.value.field == field, str(failed.value)

    async def test_tls_with_a_private_authority(self) -> None:
        trusting = {"type": "tls", "ca": AUTHORITY.certificate.read_text()}
        assert (await check(connection(TLS_PORT, tls=trusting))).startswith("Connected")


async def check(fields: dict[str, Any]) -> str:
    return await check_connection(Rabbitmq, RabbitmqConnection.model_validate(fields))


class FilledQueue(Source):
    async def write(self, bodies: Sequence[bytes]) -> None:
        async with direct() as channel:
            for body in bodies:
                one = aio_pika.Message(body, message_id=new_message_id(), content_type="application/json")
                await channel.default_exchange.publish(one, self.options["queue"])


class TestRabbitmqInput(_Rabbitmq, PrefetchSuite):
    knows_lag = True

    @asynccontextmanager
    async def source(self, *, hangs: bool = False) -> AsyncIterator[FilledQueue]:
        options = {"queue": await make_queue()}
        if not hangs:
            yield FilledQueue(connection(), options)
            return
        async with silent() as hanging:
            yield FilledQueue(hanging, options)

    async def test_a_message_without_properties_has_no_identity_and_the_optional_key(self) -> None:
        async with self.source() as source:
            source.options |= {"order_by_routing_key": True, "content_type": "text/plain"}
            async with direct() as channel:
                await channel.default_exchange.publish(aio_pika.Message(b"x"), source.options["queue"])
            [record] = await self._read(source, 1)
            assert (record.content_type, record.key) == ("text/plain", source.options["queue"].encode())
            # The tests' client gives every message an id; others do not.
            bare = aio_pika.Message(b"x")
            bare = SimpleNamespace(
                **{name: getattr(bare, name) for name in aio_pika.Message.__slots__ if not name.startswith("_")},
                routing_key="",
                exchange="",
            )
            record = self.reader(source)._record(bare)
            assert (record.content_type, record.key, record.identity) == ("text/plain", None, "")
            assert (record.source, list(record.headers)) == ("", [])

    async def test_headers_and_properties_travel_with_the_message(self) -> None:
        async with self.source() as source:
            queue = source.options["queue"]
            one = aio_pika.Message(
                b"1",
                headers={"tenant": "São", "binary": bytearray(b"\xff"), "number": 7, "list": [1, {"a": True}]},
                message_id="m-1",
                correlation_id="c-1",
                reply_to="answers",
                type="order",
                app_id="shop",
                content_type="application/json",
                timestamp=datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC),
            )
            async with direct() as channel:
                await channel.default_exchange.publish(one, queue)
            [record] = await self._read(source, 1)
            assert record.source == queue
            assert dict(record.headers) == {
                "message-id": b"m-1",
                "content-type": b"application/json",
                "correlation-id": b"c-1",
                "reply-to": b"answers",
                "type": b"order",
                "app-id": b"shop",
                "timestamp": b"2026-02-03T04:05:06Z",
                "tenant": "São".encode(),
                "binary": b"\xff",
                "number": b"7",
                "list": b'[1,{"a":true}]',
            }

    async def test_a_missing_or_deleted_queue_is_named(self) -> None:
        reader = input_reader(self.type, connection(), {"queue": "absent"})
        with pytest.raises(DeliveryError, match="no queue 'absent'"):
            async with opened(reader):
                pass
        async with (
            self.source() as source,
            opened(self.reader(source)) as reader,
            aclosing(reader.stream()) as stream,
        ):
            waiting = asyncio.create_task(anext(stream))
            await asyncio.sleep(0)
            async with direct() as channel:
                await channel.queue_delete(source.options["queue"])
            with pytest.raises(DeliveryError, match="no queue"):
                async with asyncio.timeout(LIMIT_SECONDS):
                    await waiting

    async def test_a_connection_that_is_lost_is_reported_and_its_messages_are_read_again(self) -> None:
        async with self.source() as source, relay() as between:
            await source.write([b"1"])
            reader = input_reader(self.type, connection(between.port), source.options)
            async with opened(reader), aclosing(reader.stream()) as stream:
                first = await anext(stream)
                waiting = asyncio.create_task(anext(stream))
                await asyncio.sleep(0)
                between.cut()
                with pytest.raises(DeliveryError) as failed:
                    async with asyncio.timeout(LIMIT_SECONDS):
                        await waiting
                assert failed.value.retryable
            [again] = await self._read(source, 1)
            assert again == first.records[0]
