"""HTTP with OAuth 2.0 client credentials, against a real authorization server and an API that checks its tokens."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from backend.api_calls.api import System
from backend.connectors.http.connection import HttpConnection
from backend.domain.capabilities import DeliveryError, Receipt
from backend.domain.connector import CheckFailedError, RuntimeConnector, check_connection, connectors
from backend.domain.reasons import Reason
from backend.domain.transforms.call import Call
from backend.network import http_client
from backend.network.outbound import OutboundPolicy
from tests.integration.connectors.suites import DeliverBatchSuite, DeliverSuite, Server, message
from tests.integration.connectors.suites.calls import METADATA
from tests.token_server import CLIENT_SECRET, Issuer, protected
from tests.waiting import LIMIT_SECONDS


async def accepts(_: web.Request) -> web.Response:
    return web.json_response({"ok": True})


class _Oauth:
    type = "http"

    def unreachable(self) -> dict[str, Any]:
        return {"url": "http://127.0.0.1:1/", "authentication": Issuer("http://127.0.0.1:1/").authentication()}

    @asynccontextmanager
    async def protected_server(self, hangs: bool) -> AsyncIterator[Server]:
        repaired = asyncio.Event()

        async def answer(request: web.Request) -> web.Response:
            if hangs:
                await repaired.wait()
            return await accepts(request)

        async with protected(answer) as (issuer, api):
            yield Server({"url": api.url, "authentication": issuer.authentication()}, bodies=api.bodies)
            repaired.set()


class TestHttpWithTokens(_Oauth, DeliverSuite):
    @asynccontextmanager
    async def server(self, *, hangs: bool = False) -> AsyncIterator[Server]:
        async with self.protected_server(hangs) as server:
            yield server


class _Lines(Server):
    async def delivered(self) -> list[bytes]:
        return [line for body in self.bodies for line in body.splitlines()]


class TestHttpBatchesWithTokens(_Oauth, DeliverBatchSuite):
    @asynccontextmanager
    async def server(self, *, hangs: bool = False) -> AsyncIterator[Server]:
        async with self.protected_server(hangs) as server:
            yield _Lines(server.connection, bodies=server.bodies)


class _Client:
    """Outputs of one connection."""

    def __init__(self, issuer: Issuer, url: str, **fields: Any) -> None:
        connection = {"url": url, "authentication": issuer.authentication(**fields)}
        self._output = TestHttpWithTokens().client(connection, {})

    async def deliver(self) -> Receipt:
        return await self._output.deliver_one(message())

    async def __aenter__(self) -> "_Client":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self._output.close()


async def test_a_token_is_used_until_it_expires_by_everybody() -> None:
    async with protected(accepts) as (issuer, api), _Client(issuer, api.url) as one, _Client(issuer, api.url) as other:
        await asyncio.gather(*(client.deliver() for client in (one, other) for _ in range(20)))
        assert len(issuer.tokens) == 1
        assert issuer.forms == [{"grant_type": "client_credentials", "login": "header"}]
        assert len(api.bodies) == 40


async def test_scope_and_audience_are_asked_for_and_the_login_may_be_in_the_body() -> None:
    fields = {"scope": "orders:write orders:read", "audience": "https://api.example.com", "client_login": "body"}
    async with protected(accepts) as (issuer, api), _Client(issuer, api.url, **fields) as client:
        await client.deliver()
        assert issuer.forms == [
            {
                "grant_type": "client_credentials",
                "scope": "orders:write orders:read",
                "audience": "https://api.example.com",
            }
        ]


async def test_a_token_is_renewed_before_it_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    async with protected(accepts) as (issuer, api), _Client(issuer, api.url) as client:
        await client.deliver()
        [first] = issuer.tokens
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + 250)
        await client.deliver()  # with the former token, while the next one is on its way
        async with asyncio.timeout(LIMIT_SECONDS):
            while len(issuer.tokens) < 2:
                await asyncio.sleep(0.01)
        issuer.valid.remove(first)
        await client.deliver()
        assert len(issuer.tokens) == 2
        monkeypatch.setattr(time, "time", lambda: now + 10_000)
        await client.deliver()
        assert len(issuer.tokens) == 3


async def test_a_renewal_that_fails_leaves_the_token_that_is_still_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    async with protected(accepts) as (issuer, api), _Client(issuer, api.url) as client:
        await client.deliver()
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + 250)
        issuer.status = 503
        for _ in range(3):
            await client.deliver()
        monkeypatch.setattr(time, "time", lambda: now + 10_000)
        with pytest.raises(DeliveryError, match="it answered 503") as failed:
            await client.deliver()
        assert failed.value.retryable
        issuer.status = 200
        await client.deliver()


async def test_neighbours_3_a_lifetime_that_no_clock_has_is_an_answer_without_use() -> None:
    async with protected(accepts) as (issuer, api), _Client(issuer, api.url) as client:
        issuer.lifetime = 10**400
        with pytest.raises(DeliveryError, match="expires_in") as failed:
            await client.deliver()
        assert (failed.value.reason, failed.value.retryable) == (Reason.ANSWER, True)
        issuer.lifetime = 300
        await client.deliver()


async def test_a_token_that_was_revoked_is_renewed_once() -> None:
    async with protected(accepts) as (issuer, api), _Client(issuer, api.url) as client:
        await client.deliver()
        issuer.valid.clear()
        await asyncio.gather(*(client.deliver() for _ in range(10)))
        assert len(issuer.tokens) == 2


async def test_an_api_that_refuses_every_token_fails_the_message_and_shows_none() -> None:
    async def refuses(_: web.Request) -> web.Response:
        return web.Response(status=401, text=f"not {issuer.tokens[-1]}")

    async with protected(refuses) as (issuer, api), _Client(issuer, api.url) as client:
        with pytest.raises(DeliveryError) as failed:
            await client.deliver()
        assert (failed.value.reason, failed.value.retryable, failed.value.about_message) == ("http_401", False, False)
        assert len(issuer.tokens) == 2
        assert "********" in failed.value.response
        assert not [token for token in issuer.tokens if token in str(failed.value) + failed.value.response]


async def test_an_answer_shows_no_token() -> None:
    async def echoes(request: web.Request) -> web.Response:
        return web.Response(text=request.headers["Authorization"])

    async with protected(echoes) as (issuer, api), _Client(issuer, api.url) as client:
        assert (await client.deliver()).body == "Bearer ********"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"client_secret": "wrong-secret"}, "authentication.client_secret"),
        ({"scope": "everything"}, "authentication.scope"),
        ({"token_url": "http://127.0.0.1:1/"}, "authentication.token_url"),
        ({"token_url": "http://issuer.invalid/"}, "authentication.token_url"),
    ],
)
async def test_what_is_wrong_is_explained_at_its_field(fields: dict[str, Any], field: str) -> None:
    async with protected(accepts) as (issuer, api):
        connection = {"url": api.url, "authentication": issuer.authentication(**fields)}
        with pytest.raises(CheckFailedError) as failed:
            await check_connection(connectors.get("http"), HttpConnection.model_validate(connection))
        assert failed.value.field == field
        assert "wrong-secret" not in str(failed.value)
        assert CLIENT_SECRET not in str(failed.value)
        async with _Client(issuer, api.url, **fields) as client:
            with pytest.raises(DeliveryError) as refused:
                await client.deliver()
        assert refused.value.retryable
        assert api.bodies == []


async def test_the_address_of_the_authorization_server_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with protected(accepts) as (issuer, api), _Client(issuer, api.url) as client:
        model = HttpConnection.model_validate({"url": api.url, "authentication": issuer.authentication()})
        assert model.hosts() == {"url": ["127.0.0.1"], "authentication.token_url": ["127.0.0.1"]}
        monkeypatch.setattr(http_client, "outbound_policy", OutboundPolicy)
        with pytest.raises(DeliveryError) as refused:
            await client.deliver()
        assert (refused.value.reason, refused.value.retryable) == ("forbidden", False)
        assert issuer.forms == []


async def test_a_call_has_a_token() -> None:
    async with protected(accepts) as (issuer, api):
        step = Call.model_validate(
            {"type": "call", "connector": "0190b5a0-0000-7000-8000-000000000000", "name": "price", "to": "price"}
        )
        connection = {"url": api.url, "authentication": issuer.authentication()}
        system = System(step, RuntimeConnector(type="http", connection=connection))
        assert await system.ask(system.request({}, METADATA)) == b'{"ok": true}'
        await system.close()
        assert len(issuer.tokens) == 1
