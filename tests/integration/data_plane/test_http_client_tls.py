"""Connections are shared by everybody on an event loop; certificates are not."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from aiohttp import web

from backend.network.http_client import HttpClient, HttpError, TlsSettings
from tests.certificates import Authority
from tests.receiver import receiver

ROUNDS = 3


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def settings(authority: Authority, name: str, password: str = "") -> TlsSettings:
    """With a certificate of that name; without one if there is no name."""
    trusted = authority.certificate.read_text()
    if not name:
        return TlsSettings(authorities=trusted)
    certificate, key = (file.read_text() for file in authority.issue(name, password))
    return TlsSettings(authorities=trusted, certificate=certificate, key=key, key_password=password)


@asynccontextmanager
async def clients(authority: Authority) -> AsyncIterator[dict[str, HttpClient]]:
    """By the names in their certificates; one has an encrypted key, and one has no certificate."""
    passwords = {"alice": "", "bob": "password-of-bob", "": ""}
    opened = {name: HttpClient(tls=settings(authority, name, password)) for name, password in passwords.items()}
    yield opened
    for client in opened.values():
        await client.close()


async def ask_in_turns(opened: dict[str, HttpClient], url: str, headers: list[str], body: bytes | None = None) -> None:
    """One after the other, then all together."""
    for _ in range(ROUNDS):
        for name, client in opened.items():
            await client.request("POST", url, [f"x-name: {name}", *headers], body)
    together = [(name, client) for name, client in opened.items() for _ in range(ROUNDS)]
    await asyncio.gather(
        *(client.request("POST", url, [f"x-name: {name}", *headers], body) for name, client in together)
    )


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
@pytest.mark.parametrize("kept", [True, False], ids=["kept connections", "resumed sessions"])
async def test_every_request_has_the_certificate_of_its_own_client(
    authority: Authority, version: ssl.TLSVersion, kept: bool
) -> None:
    ports: dict[str, list[int]] = {}

    async def answer(request: web.Request) -> web.Response:
        ports.setdefault(request.headers.get("x-name", ""), []).append(request.get_extra_info("peername")[1])
        response = web.Response()
        if not kept:
            response.force_close()
        return response

    context = authority.server_context(authority, required=False)
    context.maximum_version = version
    async with receiver(answer, context) as server, clients(authority) as opened:
        await ask_in_turns(opened, server.url, [])
        asked = [headers.get("x-name", "") for headers in server.headers]
        assert server.clients == asked
        assert len(asked) == len(opened) * 2 * ROUNDS
    for numbers in ports.values():
        assert len(set(numbers[:ROUNDS])) == (1 if kept else ROUNDS)


async def test_http_2_connections_have_the_certificate_of_their_own_client(authority: Authority) -> None:
    """A server for gRPC, since it speaks HTTP/2 and nothing else."""
    seen: list[tuple[str, str]] = []

    async def handle(_: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        sent = dict(context.invocation_metadata() or ())
        [name] = context.auth_context().get("x509_common_name", [b""])
        seen.append((str(sent.get("x-name", "")), name.decode()))
        return b""

    class Handler(grpc.GenericRpcHandler):
        def service(self, _: grpc.HandlerCallDetails) -> Any:
            return grpc.unary_unary_rpc_method_handler(handle)

    certificate, key = (file.read_bytes() for file in authority.issue("server"))
    # gRPC has no server that asks for certificates and does without one, so everybody here has one.
    credentials = grpc.ssl_server_credentials([(key, certificate)], authority.certificate.read_bytes(), True)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Handler(),))
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    try:
        async with clients(authority) as opened:
            nobody = opened.pop("")
            headers = ["Content-Type: application/grpc", "TE: trailers"]
            url = f"https://127.0.0.1:{port}/service/method"
            await ask_in_turns(opened, url, headers, bytes(5))
            with pytest.raises(HttpError):
                await nobody.request("POST", url, headers, bytes(5))
        assert [name for name, _ in seen] == [shown for _, shown in seen]
        assert len(seen) == len(opened) * 2 * ROUNDS
    finally:
        await server.stop(None)


@pytest.mark.parametrize("generous", [{"authorities": "its"}, {"verify": False}], ids=["authority", "unverified"])
async def test_nobody_uses_the_connection_of_a_client_that_trusts_more(
    authority: Authority, generous: dict[str, Any]
) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="here")

    if "authorities" in generous:
        generous = {"authorities": authority.certificate.read_text()}
    trusting, strict = HttpClient(tls=TlsSettings(**generous)), HttpClient()
    async with receiver(answer, authority.server_context()) as server:
        for _ in range(2):
            assert (await trusting.request("GET", server.url, [])).body == b"here"
            with pytest.raises(HttpError) as refused:
                await strict.request("GET", server.url, [])
            assert (refused.value.kind, refused.value.field) == ("tls", "ca")
        assert len(server.bodies) == 2
    await trusting.close()
    await strict.close()


def test_settings_do_not_show_the_key(authority: Authority) -> None:
    shown = repr(settings(authority, "alice", "password-of-alice"))
    assert "PRIVATE KEY" not in shown
    assert "password-of-alice" not in shown
