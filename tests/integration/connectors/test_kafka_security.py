"""How the Kafka connector logs in and encrypts, against a real broker that asks for it."""

import asyncio
import json
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from time import sleep, time
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import web
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewTopic

from backend.connectors.parts.kafka_cluster import KafkaConnection
from backend.delivery.client import DeliveryClient
from backend.domain.capabilities import DeliveryError
from backend.domain.connector import CheckFailedError, RuntimeConnector, check_connection, connectors
from backend.domain.pipeline import OutputConfig, RuntimeOutput
from backend.domain.records import Record
from backend.kafka.client import producer
from backend.kafka.client.producer import AsyncProducer
from backend.runtime.java import java_home
from backend.runtime.layout import Layout
from tests.infra import VAR
from tests.integration.connectors.suites import input_reader, message, opened
from tests.kafka_cluster import USERS, KafkaCluster
from tests.receiver import receiver
from tests.waiting import LIMIT_SECONDS, wait_until_async

SECRET = "planted-client-secret"


@pytest.fixture(scope="module")
def broker(project_layout: Layout) -> Iterator[KafkaCluster]:
    folder = Path(mkdtemp(prefix="secured-", dir=VAR))
    running = KafkaCluster(folder, project_layout.jars, java_home(project_layout), size=1, client_auth="requested")
    try:
        running.start()
        admin = AdminClient({"bootstrap.servers": running.bootstrap()})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            change = UserScramCredentialUpsertion(
                "alice", ScramCredentialInfo(mechanism, 4096), USERS["alice"].encode()
            )
            for changed in admin.alter_user_scram_credentials([change]).values():
                changed.result(LIMIT_SECONDS)
        rights = [
            AclBinding(
                kind, "secured", ResourcePatternType.PREFIXED, user, "*", AclOperation.ALL, AclPermissionType.ALLOW
            )
            for kind in (ResourceType.TOPIC, ResourceType.GROUP)
            for user in ("User:alice", "User:lane")
        ]
        for created in admin.create_acls(rights).values():
            created.result(LIMIT_SECONDS)
        admin.create_topics([NewTopic("secured", 1, 1)])["secured"].result(LIMIT_SECONDS)
        yield running
    finally:
        running.stop()


def sasl(mechanism: str, password: str = USERS["alice"]) -> dict[str, Any]:
    return {"type": "sasl", "mechanism": mechanism, "username": "alice", "password": password}


async def sent_and_read(connection: dict[str, Any], group: str) -> bool:
    """Whether a message that is delivered with this connection is read with it."""
    connector = RuntimeConnector(type="kafka", connection=connection)
    output = OutputConfig(name="out", connector="0199d1a0-0000-7000-8000-000000000000", options={"topic": "secured"})
    client = DeliveryClient(RuntimeOutput(connector=connector, config=output))
    body = json.dumps({"group": group}).encode()
    await client.deliver_one(message(body))
    await client.close()
    async with opened(input_reader("kafka", connection, {"topics": ["secured"], "group": group})) as reader:
        async for batch in reader.stream():
            if body in [record.body for record in batch.records]:
                return True
    return False


async def refusal(connection: dict[str, Any]) -> CheckFailedError:
    with pytest.raises(CheckFailedError) as failed:
        await check_connection(connectors.get("kafka"), KafkaConnection.model_validate(connection))
    return failed.value


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_password_logs_in(broker: KafkaCluster, mechanism: str) -> None:
    connection = {"bootstrap_servers": broker.bootstrap("SASL_PLAINTEXT"), "security": sasl(mechanism)}
    assert await sent_and_read(connection, f"secured-{mechanism}")


async def test_a_wrong_password_is_the_fault_of_the_login(broker: KafkaCluster) -> None:
    connection = {
        "bootstrap_servers": broker.bootstrap("SASL_PLAINTEXT"),
        "security": sasl("PLAIN", "planted-wrong-password"),
    }
    failure = await refusal(connection)
    assert failure.field == "security"
    assert "uthentication" in str(failure)
    assert "planted" not in str(failure)
    with pytest.raises(DeliveryError, match="uthentication") as failed:
        await sent_and_read(connection, "secured-wrong")
    assert failed.value.retryable


@contextmanager
def granted(admin: AdminClient, topic: str, operation: AclOperation) -> Iterator[None]:
    """To bob. Who may write one topic may have an idempotent producer."""
    place = ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:bob", "*", operation, AclPermissionType.ALLOW
    [made] = admin.create_acls([AclBinding(*place)]).values()
    made.result(LIMIT_SECONDS)
    try:
        yield
    finally:
        [removed] = admin.delete_acls([AclBindingFilter(*place)]).values()
        removed.result(LIMIT_SECONDS)


async def test_a_login_that_may_not_write_is_named_and_its_output_goes_on_once_it_may(broker: KafkaCluster) -> None:
    topic = f"granted-{time():.0f}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap()})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(LIMIT_SECONDS)
    login = {"type": "sasl", "mechanism": "PLAIN", "username": "bob", "password": USERS["bob"]}
    connection = {"bootstrap_servers": broker.bootstrap("SASL_PLAINTEXT"), "security": login}
    assert "Connected" in await check_connection(connectors.get("kafka"), KafkaConnection.model_validate(connection))
    connector = RuntimeConnector(type="kafka", connection=connection)
    output = OutputConfig(name="out", connector="0199d1a0-0000-7000-8000-000000000000", options={"topic": topic})
    client = DeliveryClient(RuntimeOutput(connector=connector, config=output))
    try:
        for _ in range(3):
            with pytest.raises(DeliveryError, match="authorization failed") as failed:
                await client.deliver_one(message(b"{}"))
            assert not failed.value.retryable

        async def is_delivered() -> bool:
            with suppress(DeliveryError):
                await client.deliver_one(message(b"{}"))
                return True
            return False

        with granted(admin, topic, AclOperation.ALL):
            await wait_until_async(is_delivered)
    finally:
        await client.close()


class _TellsLate(Producer):
    """Refuses records long before it tells why."""

    def poll(self, *limits: float) -> int:
        try:
            return super().poll(*limits)
        except KafkaException:
            sleep(1)
            raise


class _TellsNever(Producer):
    """Reports nothing before it is closed."""

    def poll(self, seconds: float = 0.0) -> int:
        sleep(seconds)
        return 0


@pytest.fixture
def described(broker: KafkaCluster) -> Iterator[str]:
    """A topic that bob sees and may not write."""
    topic = f"described-{uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap()})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(LIMIT_SECONDS)
    with granted(admin, topic, AclOperation.DESCRIBE):
        yield topic


@pytest.fixture
async def barred(
    broker: KafkaCluster, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> AsyncProducer:
    """Of bob, and not replaced while a test lasts. Tests close it."""
    monkeypatch.setattr(producer, "Producer", request.param)
    monkeypatch.setattr(producer, "_REPLACE_SECONDS", 10 * LIMIT_SECONDS)
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    login |= {"sasl.username": "bob", "sasl.password": USERS["bob"]}
    return AsyncProducer({"bootstrap.servers": broker.bootstrap("SASL_PLAINTEXT"), **login})


@pytest.mark.parametrize("barred", [_TellsLate], indirect=True)
async def test_a_record_that_comes_before_the_cause_of_a_fatal_error_is_known_fails_with_it(
    barred: AsyncProducer, described: str
) -> None:
    sent: list[asyncio.Future[Any]] = []

    async def send_until_it_is_known() -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            while True:
                sent.append(barred.send(described, key=None, value=b"{}", headers=[]))
                await asyncio.sleep(0.01)

    try:
        with pytest.raises(KafkaException, match="Cluster authorization failed"):
            await send_until_it_is_known()
        for one in sent:
            with pytest.raises(KafkaException, match="Cluster authorization failed"):
                await one
        with pytest.raises(KafkaException, match="Cluster authorization failed"):
            await barred.send_all([Record(described, None, b"{}", [])])
    finally:
        await barred.close()
    assert len(sent) > 10


@pytest.mark.parametrize("barred", [_TellsLate, _TellsNever], indirect=True)
async def test_records_fail_with_the_cause_that_is_not_known_before_their_producer_is_closed(
    described: str, barred: AsyncProducer
) -> None:
    """Those that were queued before the login was refused, too, where it takes that long."""
    sent: list[asyncio.Future[Any]] = []

    async def is_refused() -> bool:
        sent.append(barred.send(described, key=None, value=b"{}", headers=[]))
        return bool(barred._refused)

    await wait_until_async(is_refused)
    await barred.close()
    for one in sent:
        with pytest.raises(KafkaException, match="Cluster authorization failed"):
            await asyncio.wait_for(one, LIMIT_SECONDS)


async def test_a_private_authority_is_trusted_when_it_is_given(broker: KafkaCluster) -> None:
    address = {"bootstrap_servers": broker.bootstrap("SSL")}
    ca = broker.authority.certificate.read_text()
    assert await sent_and_read({**address, "tls": {"type": "tls", "ca": ca}}, "secured-tls")
    # As a text box of one line hands it over.
    pasted = ca.replace("\n", "")
    assert await sent_and_read({**address, "tls": {"type": "tls", "ca": pasted}}, "secured-pasted")
    failure = await refusal({**address, "tls": {"type": "tls"}})
    assert failure.field == "tls"
    assert "certificate" in str(failure)


async def test_a_client_certificate_logs_in(broker: KafkaCluster) -> None:
    certificate, key = (file.read_text() for file in broker.authority.issue("lane", "key-password"))
    tls = {
        "type": "tls",
        "ca": broker.authority.certificate.read_text(),
        "certificate": certificate,
        "key": key,
        "key_password": "key-password",
    }
    assert await sent_and_read({"bootstrap_servers": broker.bootstrap("SSL"), "tls": tls}, "secured-mtls")


@asynccontextmanager
async def authorization_server(status: int = 200) -> AsyncIterator[dict[str, Any]]:
    """Issues tokens without a signature, as the test's broker accepts them."""

    async def token(request: web.Request) -> web.Response:
        if status != 200:
            return web.Response(status=status, headers={"Location": "http://127.0.0.1:1/"})
        form = dict(part.split("=") for part in (await request.text()).split("&"))
        assert form == {"grant_type": "client_credentials", "scope": "kafka"}
        parts = [{"alg": "none"}, {"sub": "lane", "iat": time(), "exp": time() + 3600, "scope": "kafka"}]
        encoded = [urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
        return web.json_response({"access_token": ".".join([*encoded, ""]), "expires_in": 3600})

    async with receiver(token) as inbox:
        yield {
            "type": "oauth",
            "token_url": inbox.url,
            "client_id": "lane",
            "client_secret": SECRET,
            "scope": "kafka",
        }


async def test_a_token_logs_in(broker: KafkaCluster) -> None:
    async with authorization_server() as security:
        connection = {"bootstrap_servers": broker.bootstrap("SASL_PLAINTEXT"), "security": security}
        assert await sent_and_read(connection, "secured-oauth")
        assert "Connected" in await check_connection(connectors.get("kafka"), KafkaConnection(**connection))


@pytest.mark.parametrize("status", [401, 302])
async def test_a_token_that_is_refused_is_the_fault_of_the_login(broker: KafkaCluster, status: int) -> None:
    async with authorization_server(status) as security:
        connection = {"bootstrap_servers": broker.bootstrap("SASL_PLAINTEXT"), "security": security}
        failure = await refusal(connection)
        assert failure.field == "security"
        assert f"answered {status}" in str(failure)
        assert SECRET not in str(failure)


def test_what_was_stored_before_encryption_was_a_setting_of_its_own_is_read() -> None:
    stored = {"bootstrap_servers": "b:9092", "security": {"type": "sasl", "username": "u", "password": "p"}}
    assert KafkaConnection.load_stored(stored, 1).tls.type == "tls"
    stored["security"] |= {"tls": False}  # type: ignore[operator]
    assert KafkaConnection.load_stored(stored, 1).tls.type == "none"
    plain = KafkaConnection.load_stored({"bootstrap_servers": "b:9092", "security": {"type": "plaintext"}}, 1)
    assert (plain.security.type, plain.tls.type) == ("none", "none")
    assert KafkaConnection.load_stored({"bootstrap_servers": "b:9092"}, 1) == plain
