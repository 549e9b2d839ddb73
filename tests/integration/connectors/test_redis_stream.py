"""The Redis stream connector, against a real Valkey with a password, with and without TLS."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import redis

from backend.connectors.redis_stream.connection import RedisStreamConnection
from backend.domain import json
from backend.domain.capabilities import DeliveryError
from backend.domain.connector import CheckFailedError, check_connection, connectors
from backend.domain.message import new_message_id
from backend.runtime import servers
from tests import infra
from tests.certificates import Authority
from tests.infra import VAR
from tests.integration.connectors.suites import (
    DOCUMENTS,
    DeliverBatchSuite,
    DeliverSuite,
    ReadStreamSuite,
    Server,
    Source,
    message,
    opened,
)
from tests.ports import free_ports
from tests.waiting import wait_until

PASSWORD = "planted-password-of-redis"
[PORT] = free_ports(1)
FOLDER = Path(mkdtemp(prefix="redis-stream-", dir=VAR))
AUTHORITY = Authority(FOLDER)
CONNECTION = {"host": "127.0.0.1", "port": PORT, "password": PASSWORD}


@pytest.fixture(scope="module", autouse=True)
def valkey() -> Iterator[infra.Server]:
    command = [*servers.redis_command(FOLDER, PORT), "--requirepass", PASSWORD]
    server = infra.Server("redis-stream", command, _ready)
    server.start()
    yield server
    server.stop()


def _ready() -> bool:
    try:
        return bool(direct().ping())
    except redis.RedisError:
        return False


def direct() -> redis.Redis:
    return redis.Redis(port=PORT, password=PASSWORD)


@asynccontextmanager
async def tls_in_front() -> AsyncIterator[int]:
    """The port of a relay that asks for a client certificate: the server's build lacks TLS."""
    certificate, key = AUTHORITY.issue("redis")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(AUTHORITY.certificate))
    context.load_cert_chain(certificate, key)
    context.verify_mode = ssl.CERT_REQUIRED

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await reader.read(65536):
                writer.write(chunk)
                await writer.drain()
        writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", PORT)
        await asyncio.gather(copy(reader, other_writer), copy(other_reader, writer))

    server = await asyncio.start_server(relay, "127.0.0.1", 0, ssl=context)
    yield server.sockets[0].getsockname()[1]
    server.close()


class WrittenStream(Server):
    async def delivered(self) -> list[bytes]:
        return [fields[b"body"] for _, fields in direct().xrange(self.options["stream"])]


class _Redis:
    type = "redis_stream"

    def unreachable(self) -> dict[str, Any]:
        return {"host": "127.0.0.1", "port": 1, "password": PASSWORD}


@asynccontextmanager
async def silent() -> AsyncIterator[dict[str, Any]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield {"host": "127.0.0.1", "port": server.getsockname()[1], "password": PASSWORD}


@asynccontextmanager
async def written_stream(hangs: bool) -> AsyncIterator[WrittenStream]:
    options = {"stream": new_message_id()}
    if hangs:
        async with silent() as connection:
            yield WrittenStream(connection, options)
    else:
        yield WrittenStream(CONNECTION, options)


class TestRedisStream(_Redis, DeliverSuite):
    @asynccontextmanager
    async def server(self, *, hangs: bool = False) -> AsyncIterator[Server]:
        async with written_stream(hangs) as server:
            yield server

    async def test_an_entry_has_the_fields_of_the_message(self) -> None:
        async with self.server() as server:
            client = self.client(server.connection, server.options | {"entry": "fields"})
            for document in DOCUMENTS:
                await client.deliver_one(message(json.dumps(document)))
            for body in (b"[1]", b"{}", b"{"):
                with pytest.raises(DeliveryError) as failed:
                    await client.deliver_one(message(body))
                assert not failed.value.retryable
            await client.close()
            entries = direct().xrange(server.options["stream"])
            assert len(entries) == len(DOCUMENTS)
            for document, (_, fields) in zip(DOCUMENTS, entries, strict=True):
                assert fields == {
                    name.encode(): value.encode() if isinstance(value, str) else json.dumps(value)
                    for name, value in document.items()
                }

    async def test_the_oldest_entries_are_removed(self) -> None:
        async with self.server() as server:
            client = self.client(server.connection, server.options | {"max_length": 10})
            for _ in range(300):
                await client.deliver_one(message())
            await client.close()
            assert 10 <= direct().xlen(server.options["stream"]) < 300

    async def test_a_key_that_is_no_stream_is_a_final_error(self) -> None:
        async with self.server() as server:
            direct().set(server.options["stream"], "text")
            client = self.client(server.connection, server.options)
            with pytest.raises(DeliveryError, match="WRONGTYPE") as failed:
                await client.deliver_one(message())
            await client.close()
            assert not failed.value.retryable

    async def test_the_connection_test_names_the_field_at_fault(self) -> None:
        async def fault(**changes: Any) -> str | None:
            connection = RedisStreamConnection.model_validate({**CONNECTION, **changes})
            with pytest.raises(CheckFailedError) as failed:
                await check_connection(connectors.get("redis_stream"), connection)
            assert PASSWORD not in str(failed.value)
            return failed.value.field

        assert await fault(password="wrong-password") == "password"
        assert await fault(host="no-such-host.invalid") == "host"
        async with tls_in_front() as port:
            assert await fault(port=port, tls={"type": "tls"}) == "tls"
            ca = AUTHORITY.certificate.read_text()
            assert await fault(port=port, tls={"type": "tls", "ca": ca}) in ("tls", "host")
        assert await fault(database=99) == "database"

    async def test_tls_with_a_private_authority_and_a_client_certificate(self) -> None:
        certificate, key = (file.read_text() for file in AUTHORITY.issue("client"))
        tls = {"type": "tls", "ca": AUTHORITY.certificate.read_text(), "certificate": certificate, "key": key}
        async with tls_in_front() as port:
            connection = {**CONNECTION, "port": port, "tls": tls}
            checked = RedisStreamConnection.model_validate(connection)
            assert "PING" in await check_connection(connectors.get("redis_stream"), checked)
            client = self.client(connection, {"stream": new_message_id()})
            await client.deliver_one(message())
            await client.close()


class TestRedisStreamBatches(_Redis, DeliverBatchSuite):
    @asynccontextmanager
    async def server(self, *, hangs: bool = False) -> AsyncIterator[Server]:
        async with written_stream(hangs) as server:
            yield server

    async def test_a_message_that_does_not_fit_leaves_its_neighbours_alone(self) -> None:
        async with self.server() as server:
            client = self.client(server.connection, server.options | {"entry": "fields"})
            results = await client.deliver_batch([message(), message(b"[]"), message()])
            await client.close()
            assert [isinstance(result, DeliveryError) for result in results] == [False, True, False]
            assert direct().xlen(server.options["stream"]) == 2


class FilledStream(Source):
    async def write(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            direct().xadd(self.options["stream"], {"body": body})


class TestRedisStreamInput(_Redis, ReadStreamSuite):
    knows_lag = True

    @asynccontextmanager
    async def source(self, *, hangs: bool = False) -> AsyncIterator[FilledStream]:
        options = {"stream": new_message_id(), "group": "readers", "field": "body"}
        if hangs:
            async with silent() as connection:
                yield FilledStream(connection, options)
        else:
            yield FilledStream(CONNECTION, options)

    async def test_an_entry_without_that_field_is_an_object_of_its_fields(self) -> None:
        async with self.source() as source:
            direct().xadd(source.options["stream"], {"name": "São Paulo", "raw": b"\xff", "": "1"})
            [record] = await self._read(source, 1)
            assert json.loads(record.body) == {"name": "São Paulo", "raw": "\\xff", "": "1"}

    async def test_fields_beside_the_body_travel_with_the_message(self) -> None:
        async with self.source() as source:
            fields = {"tenant": "São", "body": b"1", "raw": b"\xff", "content-type": "text/plain"}
            direct().xadd(source.options["stream"], fields)
            [record] = await self._read(source, 1)
            assert (record.body, record.content_type, record.source) == (b"1", "text/plain", source.options["stream"])
            others = [("tenant", "São".encode()), ("raw", b"\xff"), ("content-type", b"text/plain")]
            assert list(record.headers) == others

    async def test_entries_that_another_reader_left_are_claimed(self) -> None:
        async with self.source() as source:
            await source.write([b"1", b"2"])
            stream, group = source.options["stream"], source.options["group"]
            direct().xgroup_create(stream, group, id="0")
            direct().xreadgroup(group, "somebody", {stream: ">"}, count=1)
            source.options["claim_seconds"] = 1
            await asyncio.to_thread(wait_until, lambda: _idle(stream, group) > 1100)
            records = await self._read(source, 2, acknowledge=True)
            assert sorted(record.body for record in records) == [b"1", b"2"]
            assert direct().xpending(stream, group)["pending"] == 0

    async def test_entries_that_were_removed_while_they_were_pending_are_acknowledged(self) -> None:
        async with self.source() as source:
            await source.write([b"1", b"2"])
            await self._read(source, 2)
            stream, group = source.options["stream"], source.options["group"]
            direct().xtrim(stream, maxlen=1, approximate=False)
            records = await self._read(source, 1, acknowledge=True)
            assert [record.body for record in records] == [b"2"]
            assert direct().xpending(stream, group)["pending"] <= 1

    async def test_a_group_that_begins_with_the_latest_keeps_its_place(self) -> None:
        async with self.source() as source:
            source.options["begin"] = "latest"
            await source.write([b"1"])
            async with opened(self.reader(source)):
                pass
            await source.write([b"2"])
            assert [record.body for record in await self._read(source, 1)] == [b"2"]

    async def test_batches_are_limited_by_their_size(self) -> None:
        async with self.source() as source:
            large = b'"%s"' % (b"x" * 900_000)
            await source.write([large] * 30)
            async with opened(self.reader(source)) as reader, aclosing(reader.stream()) as stream:
                await anext(stream)
                assert len((await anext(stream)).records) <= 3

    async def test_a_server_that_is_restarted_is_reported_and_read_again(self, valkey: infra.Server) -> None:
        async with self.source() as source:
            async with opened(self.reader(source)) as reader:
                stream = reader.stream()
                waiting = asyncio.create_task(anext(stream))
                await source.write([b"1"])
                await waiting
                await asyncio.to_thread(valkey.stop)
                try:
                    with pytest.raises(DeliveryError) as failed:
                        await anext(stream)
                finally:
                    await asyncio.to_thread(valkey.start)
                assert failed.value.retryable
            await source.write([b"2"])
            assert [record.body for record in await self._read(source, 2)] == [b"1", b"2"]


def _idle(stream: str, group: str) -> int:
    """Milliseconds since the first pending entry was taken."""
    [entry] = direct().xpending_range(stream, group, "-", "+", 1)
    return int(entry["time_since_delivered"])
