"""The Pub/Sub connector, against Google's emulator for Go."""

import asyncio
import socket
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import datetime
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from msgspec.structs import replace
from pydantic import ValidationError

from backend.connectors.pubsub import PubsubConnection, ServiceAccount
from backend.domain import json
from backend.domain.capabilities import DeliveryError
from backend.domain.message import Message, SourceHeader, new_message_id, source_fields, utc_now
from tests import infra
from tests.integration.connectors.suites import (
    DeliverBatchSuite,
    DeliverSuite,
    ReadStreamSuite,
    Server,
    Source,
    message,
    opened,
)
from tests.pubsub import CONNECTION, PROJECT, emulator_server, make_topic, publisher, subscriber
from tests.waiting import LIMIT_SECONDS


@pytest.fixture(scope="module", autouse=True)
def emulator() -> Iterator[infra.Server]:
    server = emulator_server()
    server.start()
    yield server
    server.stop()


@asynccontextmanager
async def silent() -> AsyncIterator[dict[str, Any]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"127.0.0.1:{server.getsockname()[1]}"
        yield {"project": PROJECT, "access": {"type": "emulator", "endpoint": endpoint}}


class Topic(Server):
    async def delivered(self) -> list[bytes]:
        return [one.data for one in await asyncio.to_thread(self.messages)]

    def messages(self) -> list[Any]:
        path, client = f"projects/{PROJECT}/subscriptions/{self.options['topic']}-read", subscriber()
        messages: list[Any] = []
        while True:
            request = {"subscription": path, "max_messages": 1000, "return_immediately": True}
            received = client.pull(request=request).received_messages
            if not received:
                return messages
            messages += [one.message for one in received]
            client.acknowledge(subscription=path, ack_ids=[one.ack_id for one in received])


class _Pubsub:
    type = "pubsub"

    def unreachable(self) -> dict[str, Any]:
        return {"project": PROJECT, "access": {"type": "emulator", "endpoint": "127.0.0.1:1"}}


class _PubsubOutput(_Pubsub):
    @asynccontextmanager
    async def server(self, *, hangs: bool = False) -> AsyncIterator[Topic]:
        topic, _ = await asyncio.to_thread(make_topic)
        if hangs:
            async with silent() as connection:
                yield Topic(connection, {"topic": topic})
        else:
            yield Topic(CONNECTION, {"topic": topic})


def ordered(key: bytes, number: int) -> Message:
    return Message(new_message_id(), "p", 1, key, b"%d" % number, "application/json", utc_now(), ())


class TestPubsub(_PubsubOutput, DeliverSuite):
    async def test_a_message_has_its_id_its_content_type_and_its_ordering_key(self) -> None:
        async with self.server() as server:
            client = self.client(server.connection, server.options | {"ordered": True})
            sent = ordered("São Paulo".encode(), 1)
            await client.deliver_one(sent)
            await client.deliver_one(ordered(b"k" * 2000, 2))
            await client.close()
            first, second = sorted(server.messages(), key=lambda one: one.data)
            assert first.ordering_key == "São Paulo"
            assert dict(first.attributes) == {"message-id": sent.id, "content-type": "application/json"}
            assert second.ordering_key == "k" * 1024

    @pytest.mark.parametrize("kept", [True, False])
    async def test_a_record_that_was_read_keeps_its_headers(self, kept: bool) -> None:
        headers: list[SourceHeader] = [
            ("tenant", b"a"),
            ("tenant", "São".encode()),
            ("empty", None),
            ("binary", b"\xff"),
            ("Message-Id", b"theirs"),
            ("googclient", b"x"),
            ("long", b"x" * 1025),
            *((f"further{number}", b"x") for number in range(200)),
        ]
        async with self.server() as server:
            client = self.client(server.connection, server.options | {"keep_headers": kept})
            sent = replace(message(), extra=source_fields("orders", headers))
            await client.deliver_one(sent)
            await client.close()
            [one] = server.messages()
            own = {"message-id": sent.id, "content-type": "application/json"}
            theirs = {"tenant": "São", "empty": ""} | {f"further{number}": "x" for number in range(96)}
            assert dict(one.attributes) == own | (theirs if kept else {})

    async def test_a_topic_that_is_missing_is_a_final_error(self) -> None:
        client = self.client(CONNECTION, {"topic": "no-such-topic"})
        with pytest.raises(DeliveryError) as failed:
            await client.deliver_one(message())
        await client.close()
        assert failed.value.reason == "pubsub_not_found"
        assert not failed.value.retryable


class TestPubsubBatches(_PubsubOutput, DeliverBatchSuite):
    pass


class Subscription(Source):
    async def write(self, bodies: Sequence[bytes]) -> None:
        await asyncio.to_thread(self.publish, [{"data": body} for body in bodies])

    def publish(self, messages: Sequence[dict[str, Any]]) -> None:
        topic = self.options["subscription"].removesuffix("-read")
        publisher().publish(topic=f"projects/{PROJECT}/topics/{topic}", messages=messages)


class TestPubsubInput(_Pubsub, ReadStreamSuite):
    @asynccontextmanager
    async def source(self, *, hangs: bool = False) -> AsyncIterator[Subscription]:
        _, subscription = await asyncio.to_thread(make_topic)
        if hangs:
            async with silent() as connection:
                yield Subscription(connection, {"subscription": subscription})
        else:
            yield Subscription(CONNECTION, {"subscription": subscription})

    async def test_messages_with_an_ordering_key_are_read_in_order(self) -> None:
        async with self.source() as source:
            keys = ("a", "b", "São Paulo")
            await asyncio.to_thread(
                source.publish,
                [
                    {"data": b"%d" % n, "ordering_key": keys[n % 3], "attributes": {"content-type": "text/plain"}}
                    for n in range(60)
                ],
            )
            records = await self._read(source, 60, acknowledge=True)
            numbers: dict[bytes | None, list[int]] = defaultdict(list)
            for record in records:
                numbers[record.key].append(int(record.body))
            assert numbers == {key.encode(): list(range(rest, 60, 3)) for rest, key in enumerate(keys)}
            assert {record.content_type for record in records} == {"text/plain"}

    async def test_attributes_travel_with_the_message(self) -> None:
        async with self.source() as source:
            one = {"data": b"1", "ordering_key": "k", "attributes": {"tenant": "São"}}
            await asyncio.to_thread(source.publish, [one])
            [record] = await self._read(source, 1, acknowledge=True)
            headers = dict(record.headers)
            assert (headers["tenant"], headers["ordering-key"]) == ("São".encode(), b"k")
            assert record.identity.endswith(f"/{(headers['pubsub-message-id'] or b'').decode()}")
            assert datetime.fromisoformat((headers["publish-time"] or b"").decode()).tzinfo is not None
            assert record.source == source.options["subscription"]

    async def test_messages_are_held_for_as_long_as_they_are_not_acknowledged(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with self.source() as source:
            await source.write([b"1"])
            extended = asyncio.Event()
            async with opened(self.reader(source)) as reader, aclosing(reader.stream()) as stream:
                batch = await anext(stream)
                extend: Any = reader._set_deadline  # type: ignore[attr-defined]

                async def recorded(seconds: int) -> None:
                    await extend(seconds)
                    extended.set()

                monkeypatch.setattr(reader, "_set_deadline", recorded)
                # The subscription's own deadline is over after 10 s; the second extension comes before that.
                for _ in range(3):
                    extended.clear()
                    async with asyncio.timeout(LIMIT_SECONDS):
                        await extended.wait()
                request = {
                    "subscription": f"projects/{PROJECT}/subscriptions/{source.options['subscription']}",
                    "max_messages": 10,
                    "return_immediately": True,
                }
                assert not subscriber().pull(request=request).received_messages
                await reader.acknowledge(batch.breakpoint)

    async def test_a_subscription_that_is_missing_is_named(self) -> None:
        failure = await self._failure(CONNECTION, {"subscription": "no-such-subscription"})
        assert "no-such-subscription" in str(failure)

    async def test_an_emulator_that_stops_is_reported(self, emulator: infra.Server) -> None:
        async with self.source() as source:
            await source.write([b"1"])
            async with opened(self.reader(source)) as reader:
                stream = reader.stream()
                await anext(stream)
                await asyncio.to_thread(emulator.stop)
                try:
                    with pytest.raises(DeliveryError) as failed:
                        await anext(stream)
                    assert failed.value.retryable
                finally:
                    await asyncio.to_thread(emulator.start)


def key_file(**changes: str) -> str:
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    document = {
        "type": "service_account",
        "client_email": "lane@my-project.iam.gserviceaccount.com",
        "private_key_id": "1",
        "private_key": private.decode(),
        "token_uri": "http://169.254.169.254/token",
        **changes,
    }
    return json.dumps(document).decode()


async def test_a_key_file_signs_its_own_tokens_and_leads_nowhere_else() -> None:
    access = {"type": "service_account", "key": key_file(universe_domain="evil.example")}
    connection = PubsubConnection.model_validate({"project": "my-project", "access": access})
    assert isinstance(connection.access, ServiceAccount)
    credentials = connection.access.credentials()
    assert credentials._token_uri == "https://oauth2.googleapis.com/token"
    assert credentials.universe_domain == "googleapis.com"
    assert connection.hosts() == {}
    # The client for Google's own address is made without connecting.
    from backend.connectors.pubsub import _Client

    client = _Client(connection)
    publisher = await client.open("publisher")
    assert publisher.transport.host == "pubsub.googleapis.com:443"
    await client.close()


@pytest.mark.parametrize("key", ["", "{", "[]", '{"type": "service_account"}', key_file(type="authorized_user")])
def test_what_is_no_key_file_is_an_error_at_its_field(key: str) -> None:
    with pytest.raises(ValidationError) as failed:
        ServiceAccount.model_validate({"key": key})
    assert [error["loc"] for error in failed.value.errors()] == [("key",)]
