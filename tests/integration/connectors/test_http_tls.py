"""HTTP with private authorities and client certificates, against real servers that verify them."""

import asyncio
import contextlib
import json
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from backend.api_calls.api import System
from backend.connectors.http.connection import HttpConnection
from backend.connectors.http.read import HttpReadBatch, HttpReadOptions
from backend.connectors.materialize_cdc import senders
from backend.connectors.materialize_cdc.connection import MaterializeConnection
from backend.connectors.parts.kafka_cluster import Cluster, KafkaConnection
from backend.domain.capabilities import DeliveryError
from backend.domain.connector import CheckFailedError, RuntimeConnector, check_connection, connectors
from backend.domain.masking import secret_values
from backend.domain.transforms.call import Call
from tests.certificates import Authority
from tests.integration.connectors.suites import CallSuite, DeliverBatchSuite, DeliverSuite, Server, message
from tests.integration.connectors.suites.calls import METADATA, Answers
from tests.receiver import Receiver, receiver
from tests.token_server import protected

PASSWORD = "planted-key-password"
ADVICE = "Enter the certificate of the authority that signed the server's"


async def accepts(_: web.Request) -> web.Response:
    return web.json_response([{"id": "a"}])


@pytest.fixture
def company(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "company")


@pytest.fixture
def stranger(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "stranger")


def trusting(authority: Authority) -> dict[str, str]:
    return {"ca": authority.certificate.read_text()}


def identified(authority: Authority, name: str = "headrace") -> dict[str, str]:
    certificate, key = (file.read_text() for file in authority.issue(name, PASSWORD))
    return {"certificate": certificate, "key": key, "key_password": PASSWORD}


@contextmanager
def server_with_alerts(context: ssl.SSLContext, status: int = 204) -> Iterator[Receiver]:
    """A server that says why it ends a handshake, as most do; those of asyncio only close the connection."""
    listener = socket.create_server(("127.0.0.1", 0))
    running = Receiver(f"https://127.0.0.1:{listener.getsockname()[1]}/")

    def answer(secured: ssl.SSLSocket) -> None:
        secured.do_handshake()
        request = b""
        while b"\r\n\r\n" not in request:
            request += secured.recv(65536)
        certificate: Any = secured.getpeercert()
        running.clients.append(certificate["subject"][0][0][1])
        secured.sendall(f"HTTP/1.1 {status} Answer\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".encode())

    def serve() -> None:
        while True:
            try:
                accepted, _ = listener.accept()
            except OSError:
                return
            secured = context.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
            with contextlib.suppress(ssl.SSLError):
                answer(secured)
            # A connection that is closed before all was read is reset, and the client may miss the alert.
            with socket.socket(fileno=secured.detach()) as plain, contextlib.suppress(OSError):
                while plain.recv(65536):
                    pass

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield running
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()


class _Mutual:
    """A server that asks for client certificates of the authority by which its own was signed."""

    type = "http"

    @pytest.fixture(autouse=True)
    def _authority(self, company: Authority) -> None:
        self.company = company
        self.fields = trusting(company) | identified(company)

    def unreachable(self) -> dict[str, Any]:
        return {"url": "https://127.0.0.1:1/", **self.fields}

    @asynccontextmanager
    async def mutual_server(self, hangs: bool) -> AsyncIterator[Receiver]:
        repaired = asyncio.Event()

        async def answer(request: web.Request) -> web.Response:
            if hangs:
                await repaired.wait()
            return web.Response(body=await request.read(), content_type="application/json")

        async with receiver(answer, self.company.server_context(self.company)) as running:
            yield running
            repaired.set()


class TestHttpWithCertificates(_Mutual, DeliverSuite):
    @asynccontextmanager
    async def server(self, *, hangs: bool = False) -> AsyncIterator[Server]:
        async with self.mutual_server(hangs) as running:
            yield Server({"url": running.url, **self.fields}, bodies=running.bodies)


class _Lines(Server):
    async def delivered(self) -> list[bytes]:
        return [line for body in self.bodies for line in body.splitlines()]


class TestHttpBatchesWithCertificates(_Mutual, DeliverBatchSuite):
    @asynccontextmanager
    async def server(self, *, hangs: bool = False) -> AsyncIterator[Server]:
        async with self.mutual_server(hangs) as running:
            yield _Lines({"url": running.url, **self.fields}, bodies=running.bodies)


class TestHttpCallsWithCertificates(_Mutual, CallSuite):
    @asynccontextmanager
    async def system(self, *, hangs: bool = False) -> AsyncIterator[Answers]:
        async with self.mutual_server(hangs) as running:
            connection = {"url": running.url, **self.fields}
            options = {"method": "POST", "path": "/values", "body": {"value": "{{value}}"}}
            yield Answers(connection, options, requests=running.bodies)


async def deliver(connection: dict[str, Any]) -> None:
    output = TestHttpWithCertificates().client(connection, {})
    try:
        await output.deliver_one(message())
    finally:
        await output.close()


async def call(connection: dict[str, Any]) -> None:
    fields = {"type": "call", "connector": "0190b5a0-0000-7000-8000-000000000000", "name": "price", "to": "price"}
    system = System(Call.model_validate(fields), RuntimeConnector(type="http", connection=connection))
    try:
        await system.ask(system.request({}, METADATA))
    finally:
        await system.close()


async def read(connection: dict[str, Any]) -> None:
    options = HttpReadOptions.model_validate({"mode": {"type": "whole"}})
    reader = HttpReadBatch(HttpConnection.model_validate(connection), options)
    await reader.open()
    try:
        assert [record.body async for batch in reader.read(None) for record in batch.records] == [b'{"id": "a"}']
    finally:
        await reader.close()


async def check(connection: dict[str, Any], connector_type: str = "http") -> str:
    connector = connectors.get(connector_type)
    return await check_connection(connector, connector.connection_model.model_validate(connection))


async def refusal(connection: dict[str, Any], connector_type: str = "http") -> CheckFailedError:
    """Of a connection test; it shows no secret."""
    with pytest.raises(CheckFailedError) as failed:
        await check(connection, connector_type)
    model = connectors.get(connector_type).connection_model.model_validate(connection)
    for secret in secret_values(model):
        assert not [line for line in secret.splitlines() if line in str(failed.value)]
    return failed.value


@pytest.mark.parametrize("use", [deliver, call, read])
async def test_output_call_and_input_trust_a_private_authority_that_is_entered(use: Any, company: Authority) -> None:
    async with receiver(accepts, company.server_context()) as server:
        await use({"url": server.url, **trusting(company)})
        with pytest.raises(DeliveryError, match=ADVICE) as refused:
            await use({"url": server.url})
        assert (refused.value.reason, refused.value.retryable) == ("tls", True)
        assert len(server.bodies) == 1


@pytest.mark.parametrize("use", [deliver, call, read])
async def test_output_call_and_input_show_the_client_certificate(use: Any, company: Authority) -> None:
    async with receiver(accepts, company.server_context(company)) as server:
        await use({"url": server.url, **trusting(company), **identified(company)})
        assert server.clients == ["headrace"]


async def test_a_connection_test_asks_for_the_authority_that_is_missing(
    company: Authority, stranger: Authority
) -> None:
    async with receiver(accepts, company.server_context()) as server:
        assert (await check({"url": server.url, **trusting(company)})).startswith("Connected")
        for fields in ({}, trusting(stranger)):
            failed = await refusal({"url": server.url, **fields})
            assert failed.field == "ca"
            assert ADVICE in str(failed)


async def test_a_certificate_for_another_host_is_not_blamed_on_the_authority(company: Authority) -> None:
    async with receiver(accepts, company.server_context()) as server:
        url = server.url.replace("127.0.0.1", "localhost")
        assert (await refusal({"url": url, **trusting(company)})).field == "verify_tls"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
async def test_a_connection_test_asks_for_the_client_certificate_that_is_missing_or_wrong(
    company: Authority, stranger: Authority, version: ssl.TLSVersion
) -> None:
    context = company.server_context(company)
    context.maximum_version = version
    with server_with_alerts(context) as server:
        connection = {"url": server.url, **trusting(company)}
        assert (await check({**connection, **identified(company)})).startswith("Connected")
        missing = await refusal(connection)
        assert missing.field == "certificate"
        assert "the server asks for a client certificate" in str(missing).lower()
        wrong = await refusal({**connection, **identified(stranger)})
        assert wrong.field == "certificate"
        assert "does not accept the client certificate" in str(wrong)
        assert server.clients == ["headrace"]


_PROFILE = {"shareCredentialsVersion": 1, "bearerToken": "planted-token"}


def connection_of(connector_type: str, url: str) -> dict[str, Any]:
    if connector_type == "delta_sharing":
        return {"profile": {"file": json.dumps({**_PROFILE, "endpoint": url})}}
    return {"url": url, **({"api_key": "planted-key"} if connector_type == "n8n" else {})}


@pytest.mark.parametrize("connector_type", ["n8n", "kafka_connect", "elasticsearch", "delta_sharing"])
async def test_other_connectors_by_http_have_the_same_certificates(connector_type: str, company: Authority) -> None:
    with server_with_alerts(company.server_context(company), 401) as server:
        connection = connection_of(connector_type, server.url)
        assert (await refusal(connection, connector_type)).field == "ca"
        assert (await refusal({**connection, **trusting(company)}, connector_type)).field == "certificate"
        assert server.clients == []
        await refusal({**connection, **trusting(company), **identified(company)}, connector_type)
        assert set(server.clients) == {"headrace"}


async def test_the_registry_of_a_change_stream_has_certificates_of_its_own(company: Authority) -> None:
    async def refuses(_: web.Request) -> web.Response:
        return web.json_response({}, status=403)

    async with receiver(refuses, company.server_context(company)) as server:
        registry = {"url": server.url, **trusting(company), **identified(company)}
        transport = {"type": "kafka", "bootstrap_servers": "127.0.0.1:1", "topic": "orders", "registry": registry}
        schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
        connection = MaterializeConnection.model_validate({"avro_schema": schema, "transport": transport})
        with pytest.raises(DeliveryError, match="schema registry"):
            await senders.open_sender(connection)
        assert server.clients == ["headrace"]


async def test_the_authorization_server_may_have_the_certificate_of_the_same_authority(company: Authority) -> None:
    context = company.server_context(company)
    async with protected(accepts, tls=context, issuer_tls=context) as (issuer, api):
        await deliver(
            {
                "url": api.url,
                "authentication": issuer.authentication(),
                **trusting(company),
                **identified(company),
            }
        )
        assert (issuer.clients, api.clients) == (["headrace"], ["headrace"])


async def test_a_token_is_used_by_the_client_certificate_for_which_it_was_issued(company: Authority) -> None:
    """The server may have bound it to the certificate."""
    context = company.server_context(company)
    async with protected(accepts, tls=context, issuer_tls=context) as (issuer, api):
        connection = {"url": api.url, "authentication": issuer.authentication(), **trusting(company)}
        await deliver({**connection, **identified(company, "alice")})
        await deliver({**connection, **identified(company, "bob")})
        assert issuer.clients == api.clients == ["alice", "bob"]
        assert [headers["Authorization"] for headers in api.headers] == [f"Bearer {token}" for token in issuer.tokens]


async def test_an_authorization_server_of_the_public_gives_tokens_for_a_private_api(
    company: Authority, stranger: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with protected(accepts, tls=company.server_context(), issuer_tls=stranger.server_context()) as (issuer, api):
        connection = {"url": api.url, "authentication": issuer.authentication(), **trusting(company)}
        failed = await refusal(connection)
        assert failed.field == "authentication.token_url"
        assert ADVICE in str(failed)
        monkeypatch.setenv("SSL_CERT_FILE", str(stranger.certificate))  # what the operating system trusts
        await deliver(connection)
        assert len(api.bodies) == 1


async def test_the_secret_of_a_client_is_not_sent_to_an_unverified_server(company: Authority) -> None:
    context = company.server_context()
    async with protected(accepts, tls=context, issuer_tls=context) as (issuer, api):
        connection = {"url": api.url, "authentication": issuer.authentication(), "verify_tls": False}
        assert (await refusal(connection)).field == "authentication.token_url"
        assert issuer.forms == []


async def test_a_login_to_kafka_by_token_has_the_certificates_of_the_cluster(company: Authority) -> None:
    async with protected(accepts, issuer_tls=company.server_context(company)) as (issuer, _):
        connection = {"bootstrap_servers": "127.0.0.1:1", "security": issuer.authentication()}
        model = KafkaConnection.model_validate(
            {**connection, "tls": {"type": "tls", **trusting(company), **identified(company)}}
        )
        token, _expires = await asyncio.to_thread(Cluster(model).config()["oauth_cb"], None)
        assert [token] == issuer.tokens
        assert issuer.clients == ["headrace"]
        plain = Cluster(KafkaConnection.model_validate(connection))
        with pytest.raises(DeliveryError, match=ADVICE):
            await asyncio.to_thread(plain.config()["oauth_cb"], None)
