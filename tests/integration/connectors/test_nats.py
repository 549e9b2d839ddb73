"""The NATS connector, against a real server with JetStream, with a login, with and without TLS."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from email.header import Header, decode_header
from typing import Any

import nats
import pytest
from msgspec.structs import replace
from nats.js import JetStreamContext

from backend.connectors.nats import Nats
from backend.connectors.nats.client import NatsClient
from backend.connectors.nats.connection import NatsConnection
from backend.connectors.nats.write import NatsOptions
from backend.domain.capabilities import DeliveryError
from backend.domain.connector import CheckFailedError, check_connection
from backend.domain.message import SourceHeader, new_message_id, source_fields
from tests import infra
from tests.integration.connectors.suites import (
    DeliverSuite,
    ReadStreamSuite,
    Server,
    Source,
    input_reader,
    message,
    opened,
)
from tests.nats import AUTHORITY, LOGIN, PASSWORD, PORT, TLS_PORT, configured_server, connection, nats_server
from tests.waiting import LIMIT_SECONDS

TOKEN = "planted-token-of-nats"


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[infra.Server]:
    running = nats_server()
    running.start()
    yield running
    running.stop()


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NatsClient, "CONNECT_SECONDS", 3)
    monkeypatch.setattr(NatsClient, "ANSWER_SECONDS", 3.0)


@asynccontextmanager
async def direct() -> AsyncIterator[JetStreamContext]:
    client = await nats.connect(f"nats://127.0.0.1:{PORT}", user="headrace", password=PASSWORD)
    try:
        yield client.jetstream()
    finally:
        await client.close()


async def make_stream(**config: Any) -> str:
    """Takes the subjects ``NAME.>``."""
    name = f"s-{new_message_id()}"
    async with direct() as jetstream:
        await jetstream.add_stream(name=name, subjects=[f"{name}.>"], **config)
    return name


async def stored(stream: str) -> list[Any]:
    async with direct() as jetstream:
        state = (await jetstream.stream_info(stream)).state
        if not state.messages:
            return []
        return [await jetstream.get_msg(stream, number) for number in range(state.first_seq, state.last_seq + 1)]


def header_text(value: str | Header) -> str:
    """For headers of a single message the library has a parser of mails, which leaves UTF-8 undecoded."""
    return "".join(part if isinstance(part, str) else part.decode() for part, _ in decode_header(value))


@asynccontextmanager
async def silent() -> AsyncIterator[dict[str, Any]]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield connection(listening.getsockname()[1])


class WrittenSubject(Server):
    async def delivered(self) -> list[bytes]:
        return [one.data for one in await stored(self.options["stream"])]


class _Nats:
    type = "nats"

    def unreachable(self) -> dict[str, Any]:
        return connection(1)


class TestNats(_Nats, DeliverSuite):
    takes_the_largest = False  # unless its max_payload is raised

    @asynccontextmanager
    async def server(self, *, hangs: bool = False) -> AsyncIterator[Server]:
        stream = await make_stream()
        options = {"subject": f"{stream}.all", "stream": stream}
        if not hangs:
            yield WrittenSubject(connection(), options)
            return
        async with silent() as hanging:
            yield WrittenSubject(hanging, options)

    async def deliver(self, body: bytes, options: dict[str, Any], **fields: Any) -> Any:
        client = self.client(connection(**fields), options)
        sent = message(body)
        try:
            await client.deliver_one(sent)
        finally:
            await client.close()
        return sent

    async def test_the_subject_is_made_of_the_message(self) -> None:
        stream = await make_stream()
        options = {"subject": f"{stream}.{{{{country}}}}.{{{{order.id}}}}"}
        sent = await self.deliver('{"country": "São-Paulo", "order": {"id": 7}}'.encode(), options)
        [one] = await stored(stream)
        assert one.subject == f"{stream}.São-Paulo.7"
        assert one.headers["message-id"] == one.headers["Nats-Msg-Id"] == sent.id
        assert one.headers["content-type"] == "application/json"

    @pytest.mark.parametrize("kept", [True, False])
    async def test_a_record_that_was_read_keeps_its_headers(self, kept: bool) -> None:
        stream = await make_stream()
        headers: list[SourceHeader] = [
            ("tenant", b"a"),
            ("tenant", "São".encode()),
            ("empty", None),
            ("Message-Id", b"theirs"),
            ("Nats-Rollup", b"all"),
            ("two words", b"x"),
            ("lines", b"1\r\nNats-Rollup: all"),
            ("binary", b"\xff"),
        ]
        client = self.client(connection(), {"subject": f"{stream}.x", "keep_headers": kept})
        sent = replace(message(), extra=source_fields("orders", headers))
        await client.deliver_one(sent)
        await client.close()
        [one] = await stored(stream)
        own = {"Nats-Msg-Id": sent.id, "message-id": sent.id, "content-type": "application/json"}
        written = {name: header_text(value) for name, value in one.headers.items()}
        assert written == own | ({"tenant": "São", "empty": ""} if kept else {})

    @pytest.mark.parametrize("value", ['"a.b"', '"*"', '">"', '"a b"', '""', "null", '"line\\nbreak"', "{}"])
    async def test_a_value_cannot_lead_to_another_level(self, value: str) -> None:
        stream = await make_stream()
        with pytest.raises(DeliveryError) as failed:
            await self.deliver(b'{"v": %s}' % value.encode(), {"subject": f"{stream}.{{{{v}}}}"})
        assert failed.value.about_message
        assert not failed.value.retryable
        assert await stored(stream) == []

    async def test_a_repeat_is_stored_once(self) -> None:
        async with self.server() as server:
            client = self.client(server.connection, server.options)
            sent = message(b"{}")
            for _ in range(3):
                await client.deliver_one(sent)
            await client.close()
            assert await server.delivered() == [b"{}"]

    async def test_messages_of_900_kb_arrive_and_larger_ones_are_the_messages_fault(self) -> None:
        async with self.server() as server:
            body = b'"' + b"x" * 900_000 + b'"'
            await self.deliver(body, server.options)
            assert await server.delivered() == [body]
            with pytest.raises(DeliveryError, match="larger") as failed:
                await self.deliver(b'"' + b"x" * 1_100_000 + b'"', server.options)
            assert failed.value.about_message
        limited = await make_stream(max_msg_size=100)
        with pytest.raises(DeliveryError) as failed:
            await self.deliver(b'"' + b"x" * 200 + b'"', {"subject": f"{limited}.all"})
        assert (failed.value.reason, failed.value.about_message) == ("too_large", True)

    async def test_a_subject_that_no_stream_takes_or_another_one_is_a_fault_of_the_configuration(self) -> None:
        with pytest.raises(DeliveryError, match="No stream") as failed:
            await self.deliver(b"{}", {"subject": "nobody.takes.this"})
        assert failed.value.retryable
        stream = await make_stream()
        with pytest.raises(DeliveryError, match="expected stream"):
            await self.deliver(b"{}", {"subject": f"{stream}.all", "stream": "another"})

    async def test_a_missing_permission_is_named(self) -> None:
        with pytest.raises(DeliveryError, match=r"(?i)permissions violation"):
            await self.deliver(b"{}", {"subject": "forbidden.x"}, login=LOGIN | {"username": "reader"})

    async def test_a_server_that_was_restarted_is_connected_to_again(self, server: infra.Server) -> None:
        async with self.server() as written:
            client = self.client(written.connection, written.options)
            await client.deliver_one(message(b"1"))
            server.stop()
            with pytest.raises(DeliveryError) as failed:
                await client.deliver_one(message(b"2"))
            assert failed.value.retryable
            server.start()
            await client.deliver_one(message(b"3"))
            await client.close()
            assert await written.delivered() == [b"1", b"3"]

    async def test_the_connection_test_names_the_field_at_fault(self) -> None:
        assert (await check(connection())).startswith("Connected to NATS 2.")
        second = connection() | {"servers": f"127.0.0.1:1,127.0.0.1:{PORT}"}
        assert (await check(second)).startswith("Connected to NATS 2.")
        for field, wrong in {
            "login": connection(login=LOGIN | {"password": "wrong"}),
            "servers": connection() | {"servers": "unknown.invalid:4222"},
            "tls": connection(tls={"type": "tls"}),
        }.items():
            with pytest.raises(CheckFailedError) as failed:
                await check(wrong)
            assert failed.value.field == field, str(failed.value)

    @pytest.mark.parametrize("tls", ["tls", "mutual"])
    async def test_tls_with_a_private_authority_and_a_token(self, tls: str) -> None:
        certificate, key = AUTHORITY.issue(f"nats-{tls}")
        verify = f'ca_file: "{AUTHORITY.certificate}", verify: true' if tls == "mutual" else ""
        secured = configured_server(
            f"nats-{tls}",
            TLS_PORT,
            f'tls {{ cert_file: "{certificate}", key_file: "{key}", {verify} }}\nauthorization {{ token: "{TOKEN}" }}',
        )
        secured.start()
        try:
            trusting: dict[str, Any] = {"type": "tls", "ca": AUTHORITY.certificate.read_text()}
            if tls == "mutual":
                own, own_key = AUTHORITY.issue("client")
                trusting |= {"certificate": own.read_text(), "key": own_key.read_text()}
            login = {"type": "token", "token": TOKEN}
            assert (await check(connection(TLS_PORT, login=login, tls=trusting))).startswith("Connected")
            for wrong in (trusting | {"ca": ""}, {"type": "none"}):
                with pytest.raises(CheckFailedError) as failed:
                    await check(connection(TLS_PORT, login=login, tls=wrong))
                assert failed.value.field == "tls", str(failed.value)
        finally:
            secured.stop()

    @pytest.mark.parametrize("subject", ["", "a b", "orders.*", "orders.>", ".a", "a.", "a..b", "{{$message.no}}"])
    def test_a_subject_that_cannot_be_published_to_is_refused(self, subject: str) -> None:
        with pytest.raises(ValueError, match="NatsOptions"):
            NatsOptions.model_validate({"subject": subject})


async def check(fields: dict[str, Any]) -> str:
    return await check_connection(Nats, NatsConnection.model_validate(fields))


class FilledStream(Source):
    async def write(self, bodies: Sequence[bytes]) -> None:
        async with direct() as jetstream:
            for number, body in enumerate(bodies):
                headers = {"Content-Type": "application/json"}
                await jetstream.publish(f"{self.options['stream']}.n{number}", body, headers=headers)


class TestNatsInput(_Nats, ReadStreamSuite):
    knows_lag = True

    @asynccontextmanager
    async def source(self, *, hangs: bool = False) -> AsyncIterator[FilledStream]:
        options = {"stream": await make_stream(), "consumer": "headrace", "acknowledge_seconds": 2}
        if not hangs:
            yield FilledStream(connection(), options)
            return
        async with silent() as hanging:
            yield FilledStream(hanging, options)

    async def test_a_subject_is_filtered_and_orders_messages(self) -> None:
        async with self.source() as source:
            source.options |= {"filter_subject": f"{source.options['stream']}.n1", "order_by_subject": True}
            await source.write([b"0", b"1", b"2"])
            [record] = await self._read(source, 1)
            assert (record.body, record.key) == (b"1", f"{source.options['stream']}.n1".encode())

    async def test_headers_travel_with_the_message(self) -> None:
        async with self.source() as source:
            headers = {"tenant": "São", "Nats-Msg-Id": "1"}
            async with direct() as jetstream:
                await jetstream.publish(f"{source.options['stream']}.x", b"1", headers=headers)
            [record] = await self._read(source, 1)
            assert sorted(record.headers) == [("Nats-Msg-Id", b"1"), ("tenant", "São".encode())]
            assert record.source == f"{source.options['stream']}.x"

    async def test_a_consumer_that_begins_with_the_latest_keeps_its_place(self) -> None:
        async with self.source() as source:
            source.options |= {"begin": "latest", "content_type": "text/plain"}
            await source.write([b"before"])
            async with opened(self.reader(source)):
                pass
            async with direct() as jetstream:
                await jetstream.publish(f"{source.options['stream']}.x", b"after")
            [record] = await self._read(source, 1)
            assert (record.body, record.content_type) == (b"after", "text/plain")

    async def test_messages_are_held_for_as_long_as_they_are_being_stored(self) -> None:
        async with self.source() as source:
            await source.write([b"slow"])
            async with opened(self.reader(source)) as reader, aclosing(reader.stream()) as stream:
                batch = await anext(stream)
                async with direct() as jetstream:
                    other = await jetstream.pull_subscribe_bind("headrace", source.options["stream"])
                    with pytest.raises(nats.errors.TimeoutError):
                        await other.fetch(1, timeout=5)  # twice the time after which it would be delivered again
                await reader.acknowledge(batch.breakpoint)
                async with direct() as jetstream:
                    info = await jetstream.consumer_info(source.options["stream"], "headrace")
                assert info.num_ack_pending == 0

    async def test_a_missing_stream_is_named(self) -> None:
        reader = input_reader(self.type, connection(), {"stream": "absent", "consumer": "headrace"})
        with pytest.raises(DeliveryError, match="stream not found"):
            async with opened(reader):
                pass

    async def test_a_server_that_stops_is_reported_and_read_again_when_it_is_back(self, server: infra.Server) -> None:
        async with self.source() as source:
            await source.write([b"1"])
            async with opened(self.reader(source)) as reader, aclosing(reader.stream()) as stream:
                await reader.acknowledge((await anext(stream)).breakpoint)
                waiting = asyncio.create_task(anext(stream))
                await asyncio.sleep(0)
                server.stop()
                with pytest.raises(DeliveryError) as failed:
                    async with asyncio.timeout(LIMIT_SECONDS):
                        await waiting
                assert failed.value.retryable
            server.start()
            await source.write([b"2"])
            assert [record.body for record in await self._read(source, 1)] == [b"2"]
