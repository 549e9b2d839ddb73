"""The MQTT connector, against Mosquitto, with MQTT 5 and 3.1.1, with and without TLS."""

import asyncio
import queue
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from backend.connectors.mqtt import Mqtt, MqttConnection
from backend.connectors.mqtt.client import MqttClient, MqttSession
from backend.connectors.mqtt.deliver import MqttOptions
from backend.connectors.mqtt.read import MqttReadOptions
from backend.domain.capabilities import DeliveryError
from backend.domain.connector import CheckFailedError, check_connection
from backend.domain.message import SourceHeader, new_message_id, source_fields
from tests import infra
from tests.integration.connectors.suites import (
    DeliverSuite,
    PrefetchSuite,
    Registering,
    RegisterSuite,
    Server,
    Source,
    input_reader,
    message,
    opened,
)
from tests.mosquitto import (
    AUTHORITY,
    MUTUAL_PORT,
    PACKET_BYTES,
    PASSWORD,
    PORT,
    READER,
    TLS_PORT,
    USER,
    mosquitto_server,
)
from tests.waiting import LIMIT_SECONDS

both_versions = pytest.mark.parametrize("version", ["5", "3.1.1"])


def connection(port: int = PORT, **fields: Any) -> dict[str, Any]:
    return {"host": "127.0.0.1", "port": port, "username": USER, "password": PASSWORD, **fields}


@pytest.fixture(scope="module", autouse=True)
def broker() -> Iterator[infra.Server]:
    running = mosquitto_server()
    running.start()
    yield running
    running.stop()


@asynccontextmanager
async def direct(**fields: Any) -> AsyncIterator[MqttClient]:
    client = MqttClient(MqttConnection.model_validate(connection(**fields)), MqttSession(new_message_id(), 0, 1000))
    try:
        await client.open()
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def silent() -> AsyncIterator[dict[str, Any]]:
    """A broker that never answers, on which calls are cut off after a second."""
    with socket.create_server(("127.0.0.1", 0)) as listening, pytest.MonkeyPatch.context() as patch:
        for name in ("_CONNECT_SECONDS", "_ANSWER_SECONDS"):
            patch.setattr(f"backend.connectors.mqtt.client.{name}", 1.0)
        yield connection(listening.getsockname()[1])


class WrittenTopic(Server):
    """Subscribed to from the start."""

    def __init__(self, fields: dict[str, Any], options: dict[str, Any], subscriber: MqttClient) -> None:
        super().__init__(fields, options)
        self._subscriber = subscriber
        self._collected: list[Any] = []

    async def arrived(self) -> list[Any]:
        """Everything that was published before."""
        end = new_message_id().encode()
        await self._subscriber.publish(self.options["topic"] + "/end", end, qos=1, retain=False, properties=None)
        while True:
            one = await self._subscriber.received.get()
            if one.qos:
                self._subscriber.acknowledge(one.mid)
            if one.payload == end:
                return self._collected
            self._collected.append(one)

    async def delivered(self) -> list[bytes]:
        return [bytes(one.payload) for one in await self.arrived()]


class _Mqtt:
    type = "mqtt"

    def unreachable(self) -> dict[str, Any]:
        return connection(1)


class TestMqtt(_Mqtt, DeliverSuite):
    @asynccontextmanager
    async def server(self, *, hangs: bool = False) -> AsyncIterator[WrittenTopic]:
        topic = f"t/{new_message_id()}"
        async with direct() as subscriber:
            await subscriber.subscribe(f"{topic}/#", 1)
            if not hangs:
                yield WrittenTopic(connection(), {"topic": topic}, subscriber)
                return
            async with silent() as hanging:
                yield WrittenTopic(hanging, {"topic": topic}, subscriber)

    async def deliver(self, body: bytes, options: dict[str, Any], **fields: Any) -> Any:
        client = self.client(connection(**fields), options)
        sent = message(body)
        try:
            await client.deliver_one(sent)
        finally:
            await client.close()
        return sent

    async def test_the_topic_is_made_of_the_message(self) -> None:
        async with self.server() as server:
            options = {"topic": server.options["topic"] + "/{{city}}/{{order.id}}"}
            sent = await self.deliver('{"city": "São Paulo", "order": {"id": 7}}'.encode(), options)
            [one] = await server.arrived()
            assert one.topic == server.options["topic"] + "/São Paulo/7"
            assert one.properties.UserProperty == [("message-id", sent.id)]
            assert one.properties.ContentType == "application/json"

    @both_versions
    @pytest.mark.parametrize("kept", [True, False])
    async def test_a_record_that_was_read_keeps_its_headers(self, kept: bool, version: str) -> None:
        headers: list[SourceHeader] = [
            ("tenant", b"a"),
            ("tenant", "São".encode()),
            ("empty", None),
            ("binary", b"\xff"),
            ("control", b"\x00"),
            ("Message-Id", b"theirs"),
            ("correlation-data", b"\xfe"),
            ("response-topic", b"answers/7"),
        ]
        async with self.server() as server:
            client = self.client(connection(version=version), server.options | {"keep_headers": kept})
            sent = replace(message(), extra=source_fields("orders", headers))
            await client.deliver_one(sent)
            await client.close()
            [one] = await server.arrived()
            theirs = [("tenant", "a"), ("tenant", "São"), ("empty", ""), ("response-topic", "answers/7")]
            kept = kept and version == "5"
            own = [("message-id", sent.id)] if version == "5" else []
            assert getattr(one.properties, "UserProperty", []) == own + (theirs if kept else [])
            assert getattr(one.properties, "CorrelationData", None) == (b"\xfe" if kept else None)
            assert getattr(one.properties, "ResponseTopic", None) == ("answers/7" if kept else None)

    @both_versions
    @pytest.mark.parametrize("qos", [0, 1, 2])
    async def test_each_quality_of_service_with_each_version(self, qos: int, version: str) -> None:
        async with self.server() as server:
            client = self.client(connection(version=version), server.options | {"qos": qos})
            # Mosquitto drops what it cannot pass on immediately with quality 0.
            length = 300_000 if qos else 300
            bodies = [b'"%d' % number + "ü".encode() * length + b'"' for number in range(5)]
            for body in bodies:
                await client.deliver_one(message(body))
            await client.close()
            # The broker acknowledges nothing with quality 0, and may read other connections first.
            async with asyncio.timeout(LIMIT_SECONDS):
                while len(await server.delivered()) < len(bodies):
                    await asyncio.sleep(0.05)
            assert await server.delivered() == bodies

    async def test_a_retained_message_is_there_for_later_subscribers(self) -> None:
        topic = f"t/{new_message_id()}"
        for body in (b"1", b"2"):
            await self.deliver(body, {"topic": topic, "retain": True})
        await self.deliver(b"3", {"topic": topic})
        async with direct() as later:
            await later.subscribe(topic, 1)
            one = await later.received.get()
            assert (one.payload, one.retain) == (b"2", True)

    @pytest.mark.parametrize(
        "value", ['"a/b"', '"+"', '"#"', '""', "null", '"\\u0000"', "{}", '"' + "x" * 70_000 + '"']
    )
    async def test_a_value_cannot_lead_to_another_level(self, value: str) -> None:
        with pytest.raises(DeliveryError) as failed:
            await self.deliver(b'{"v": %s}' % value.encode(), {"topic": "t/{{v}}"})
        assert failed.value.about_message
        assert not failed.value.retryable

    async def test_a_message_that_is_too_large_is_its_own_fault_and_breaks_no_connection(self) -> None:
        async with self.server() as server:
            client = self.client(server.connection, server.options)
            with pytest.raises(DeliveryError, match="larger") as failed:
                await client.deliver_one(message(b'"' + b"x" * PACKET_BYTES + b'"'))
            assert (failed.value.reason, failed.value.about_message) == ("too_large", True)
            await client.deliver_one(message(b"1"))
            await client.close()
            assert await server.delivered() == [b"1"]

    async def test_a_missing_right_is_named(self) -> None:
        with pytest.raises(DeliveryError, match="Not authorized") as failed:
            await self.deliver(b"{}", {"topic": "t/x"}, username=READER)
        assert failed.value.retryable

    async def test_a_broker_that_was_restarted_is_connected_to_again(self, broker: infra.Server) -> None:
        async with self.server() as server:
            client = self.client(server.connection, server.options)
            await client.deliver_one(message(b"1"))
            assert await server.delivered() == [b"1"]
            broker.stop()
            with pytest.raises(DeliveryError) as failed:
                await client.deliver_one(message(b"2"))
            assert failed.value.retryable
            broker.start()
            async with direct() as subscriber:
                await subscriber.subscribe(server.options["topic"], 1)
                await client.deliver_one(message(b"3"))
                assert (await subscriber.received.get()).payload == b"3"
            await client.close()

    async def test_the_connection_test_names_the_field_at_fault(self) -> None:
        for version in ("5", "3.1.1"):
            assert await check(connection(version=version)) == f"Connected to 127.0.0.1:{PORT} by MQTT {version}."
            for field, wrong in {
                "password": connection(password="wrong", version=version),
                "host": connection(host="unknown.invalid", version=version),
                "tls": connection(TLS_PORT, tls={"type": "tls"}, version=version),
            }.items():
                with pytest.raises(CheckFailedError) as failed:
                    await check(wrong)
                assert failed.value.field == field, str(failed.value)

    async def test_a_broker_that_ends_the_connection_is_reported(self) -> None:
        with pytest.raises(CheckFailedError, match="Check port, TLS"):
            await check(connection(TLS_PORT))

    async def test_tls_with_a_private_authority_and_a_client_certificate(self) -> None:
        trusting = {"type": "tls", "ca": AUTHORITY.certificate.read_text()}
        assert (await check(connection(TLS_PORT, tls=trusting))).startswith("Connected")
        with pytest.raises(CheckFailedError):
            await check(connection(MUTUAL_PORT, tls=trusting))
        certificate, key = AUTHORITY.issue("mqtt-client")
        mutual = trusting | {"certificate": certificate.read_text(), "key": key.read_text()}
        assert (await check(connection(MUTUAL_PORT, tls=mutual))).startswith("Connected")

    @pytest.mark.parametrize("topic", ["", "a/+/b", "#", "a/#", "{{$message.no}}"])
    def test_a_topic_that_cannot_be_published_to_is_refused(self, topic: str) -> None:
        with pytest.raises(ValueError, match="MqttOptions"):
            MqttOptions.model_validate({"topic": topic})

    def test_a_password_needs_a_user_name(self) -> None:
        with pytest.raises(ValueError, match="needs a user name"):
            MqttConnection.model_validate({"host": "h", "password": "p"})


async def check(fields: dict[str, Any]) -> str:
    return await check_connection(Mqtt, MqttConnection.model_validate(fields))


class FilledTopic(Source):
    async def write(self, bodies: Sequence[bytes]) -> None:
        async with direct() as client:
            for body in bodies:
                properties = Properties(PacketTypes.PUBLISH)
                properties.UserProperty = [("message-id", new_message_id())]
                topic = self.options["topic"].replace("#", "x")
                await client.publish(topic, body, qos=2, retain=False, properties=properties)


class TestMqttInput(_Mqtt, PrefetchSuite):
    @asynccontextmanager
    async def source(self, *, hangs: bool = False, **fields: Any) -> AsyncIterator[FilledTopic]:
        name = new_message_id()
        options = {"topic": f"s/{name}/#", "client_id": name}
        if hangs:
            async with silent() as hanging:
                yield FilledTopic(hanging, options)
            return
        # What is published before the first subscription reaches nobody.
        async with opened(input_reader(self.type, connection(**fields), options)):
            pass
        yield FilledTopic(connection(**fields), options)

    @both_versions
    async def test_what_is_published_while_nobody_reads_waits_and_is_read_in_order(self, version: str) -> None:
        async with self.source(version=version) as source:
            source.options |= {"order_by_topic": True, "content_type": "text/plain"}
            topic = source.options["topic"].replace("#", "São Paulo")
            async with direct() as client:
                for number in range(60):
                    await client.publish(topic, b"%d" % number, qos=1, retain=False, properties=None)
            read: list[bytes] = []
            async with opened(self.reader(source)) as reader, aclosing(reader.stream()) as stream:
                while len(read) < 60:
                    batch = await anext(stream)
                    read += [record.body for record in batch.records]
                    await reader.acknowledge(batch.breakpoint)
                    first = batch.records[0]
                    assert (first.content_type, first.key, first.identity) == ("text/plain", topic.encode(), "")
            assert read == [b"%d" % number for number in range(60)]

    async def test_properties_travel_with_the_message(self) -> None:
        async with self.source() as source:
            topic = source.options["topic"].replace("#", "x")
            properties: Any = Properties(PacketTypes.PUBLISH)
            properties.UserProperty = [("tenant", "a"), ("tenant", "São")]
            properties.ContentType = "application/json"
            properties.ResponseTopic = "answers"
            properties.CorrelationData = b"\xff"
            async with direct() as client:
                await client.publish(topic, b"1", qos=1, retain=False, properties=properties)
            [record] = await self._read(source, 1, acknowledge=True)
            assert list(record.headers) == [
                ("content-type", b"application/json"),
                ("response-topic", b"answers"),
                ("correlation-data", b"\xff"),
                ("tenant", b"a"),
                ("tenant", "São".encode()),
            ]
            assert record.source == topic

    async def test_the_network_thread_waits_where_the_broker_knows_no_limit(self) -> None:
        async with self.source() as source:
            source.options |= {"prefetch": 2, "qos": 0}
            async with opened(self.reader(source)) as reader, direct() as client:
                for number in range(20):
                    topic = source.options["topic"].replace("#", "x")
                    await client.publish(topic, b"%d" % number, qos=1, retain=False, properties=None)
                read: list[bytes] = []
                async with aclosing(reader.stream()) as stream:
                    while len(read) < 20:
                        batch = await anext(stream)
                        assert len(batch.records) <= 4
                        assert batch.breakpoint == []
                        read += [record.body for record in batch.records]
                assert read == [b"%d" % number for number in range(20)]

    async def test_a_reader_whose_thread_waits_closes_in_time(self) -> None:
        async with self.source() as source:
            source.options |= {"prefetch": 1, "qos": 0}
            reader = self.reader(source)
            async with asyncio.timeout(LIMIT_SECONDS), opened(reader), direct() as client:
                for number in range(20):
                    topic = source.options["topic"].replace("#", "x")
                    await client.publish(topic, b"%d" % number, qos=1, retain=False, properties=None)
                while not reader._client.received.full():
                    await asyncio.sleep(0.01)

    @both_versions
    @pytest.mark.parametrize("read_retained", [True, False])
    async def test_what_is_retained_is_read_if_wanted(self, version: str, read_retained: bool) -> None:
        name = new_message_id()
        options = {"topic": f"s/{name}", "client_id": name, "read_retained": read_retained}
        async with direct() as client:
            await client.publish(f"s/{name}", b"retained", qos=1, retain=True, properties=None)
            async with (
                opened(input_reader(self.type, connection(version=version), options)) as reader,
                aclosing(reader.stream()) as stream,
            ):
                await client.publish(f"s/{name}", b"new", qos=1, retain=False, properties=None)
                read: list[bytes] = []
                while b"new" not in read:
                    batch = await anext(stream)
                    read += [record.body for record in batch.records]
                    await reader.acknowledge(batch.breakpoint)
            assert read == ([b"retained", b"new"] if read_retained else [b"new"])

    async def test_the_subscribers_of_a_group_share_its_messages(self) -> None:
        name = new_message_id()
        readers = [
            input_reader(
                self.type, connection(), {"topic": f"$share/{name}/s/{name}/#", "client_id": f"{name}-{number}"}
            )
            for number in range(2)
        ]
        async with opened(readers[0]) as first, opened(readers[1]) as second, direct() as client:
            bodies = [b"%d" % number for number in range(10)]
            for body in bodies:
                await client.publish(f"s/{name}/x", body, qos=1, retain=False, properties=None)
            read: list[list[bytes]] = [[], []]
            for own, reader in zip(read, (first, second), strict=True):
                async with aclosing(reader.stream()) as stream:
                    while len(own) < 5:
                        own += [record.body for record in (await anext(stream)).records]
            assert sorted([*read[0], *read[1]]) == bodies

    async def test_what_a_session_has_of_an_earlier_topic_is_dropped(self) -> None:
        async with self.source() as source:
            await source.write([b"earlier"])
            source.options |= {"topic": source.options["topic"].replace("#", "new/#")}
            async with opened(self.reader(source)):
                pass
            await source.write([b"new"])
            [record] = await self._read(source, 1, acknowledge=True)
            assert record.body == b"new"

    async def test_a_broker_that_stops_is_reported_and_keeps_the_session(self, broker: infra.Server) -> None:
        async with self.source() as source:
            async with opened(self.reader(source)) as reader, aclosing(reader.stream()) as stream:
                await source.write([b"1"])
                first = await anext(stream)
                waiting = asyncio.create_task(anext(stream))
                await asyncio.sleep(0)
                broker.stop()
                try:
                    with pytest.raises(DeliveryError) as failed:
                        async with asyncio.timeout(LIMIT_SECONDS):
                            await waiting
                    with pytest.raises(DeliveryError):
                        await reader.acknowledge(first.breakpoint)
                finally:
                    broker.start()
                assert failed.value.retryable
            [again] = await self._read(source, 1)
            assert again == first.records[0]

    async def test_a_second_reader_with_the_same_client_id_takes_over(self) -> None:
        async with self.source() as source, opened(self.reader(source)) as first:
            waiting = asyncio.create_task(anext(first.stream()))
            await asyncio.sleep(0)
            async with opened(self.reader(source)):
                with pytest.raises(DeliveryError, match="is lost"):
                    async with asyncio.timeout(LIMIT_SECONDS):
                        await waiting

    @pytest.mark.parametrize("topic", ["", "a/#/b", "a+/b", "a/b#", "$share/group"])
    def test_a_topic_that_cannot_be_subscribed_to_is_refused(self, topic: str) -> None:
        with pytest.raises(ValueError, match="MqttReadOptions"):
            MqttReadOptions.model_validate({"topic": topic, "client_id": "c"})


def has_session(client_id: str) -> bool:
    """Whether the broker keeps a session for the client ID."""
    present: queue.Queue[bool] = queue.Queue()
    client = Client(CallbackAPIVersion.VERSION2, client_id=client_id, protocol=MQTTProtocolVersion.MQTTv5)
    client.username_pw_set(USER, PASSWORD)
    client.on_connect = lambda _client, _data, flags, _reason, _properties: present.put(flags.session_present)
    kept, ended = Properties(PacketTypes.CONNECT), Properties(PacketTypes.DISCONNECT)
    kept.SessionExpiryInterval, ended.SessionExpiryInterval = 3600, 0
    client.connect("127.0.0.1", PORT, clean_start=False, properties=kept)
    client.loop_start()
    answer = present.get(timeout=LIMIT_SECONDS)
    client.disconnect(properties=None if answer else ended)
    client.loop_stop()
    return answer


class Sessions(Registering):
    async def present(self) -> set[str]:
        client_id = self.options["client_id"]
        return {client_id} if await asyncio.to_thread(has_session, client_id) else set()


class TestMqttRegistration(_Mqtt, RegisterSuite):
    @asynccontextmanager
    async def system(self, *, hangs: bool = False) -> AsyncIterator[Sessions]:
        name = new_message_id()
        options = {"topic": f"s/{name}", "client_id": name}
        if hangs:
            async with silent() as hanging:
                yield Sessions(hanging, options)
            return
        sessions = Sessions(connection(), options)
        yield sessions
        await self.remove(sessions)

    async def test_the_sessions_of_all_versions_end(self) -> None:
        async with self.system() as system:
            earlier = system.options["client_id"]
            made = await self._register(system, {})
            system.options["client_id"] = later = f"{earlier}-2"
            made = await self._register(system, made)
            assert has_session(earlier)
            assert has_session(later)
            await self.remove(system, made)
            assert not has_session(earlier)
            assert not has_session(later)

    async def test_a_reader_stays_connected_while_another_version_is_published(self) -> None:
        async with self.system() as system:
            made = await self._register(system, {})
            async with opened(input_reader(self.type, system.connection, system.options)) as reader, direct() as client:
                await self._register(system, made)
                await client.publish(system.options["topic"], b"1", qos=1, retain=False, properties=None)
                async with aclosing(reader.stream()) as stream:
                    assert [record.body for record in (await anext(stream)).records] == [b"1"]
