"""The HTTP connector, against a real HTTP server."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import pytest
from aiohttp import web

from backend.connectors.http.connection import HttpConnection
from backend.connectors.http.deliver import HttpDeliver
from backend.connectors.http.options import HttpOptions
from backend.domain import json, webhook_signature
from backend.domain.capabilities import DeliveryError, Receipt
from backend.domain.message import Message, new_message_id, utc_now
from backend.domain.reasons import Reason
from tests.integration.connectors.suites import (
    Answers,
    CallSuite,
    DeliverBatchSuite,
    DeliverSuite,
    ReadBatchSuite,
    Server,
    Source,
)
from tests.json_api import JsonApi, json_api
from tests.receiver import receiver

SECRETS = {"authentication": {"type": "bearer", "token": "planted-token-of-http"}}


@asynccontextmanager
async def http_server(hangs: bool) -> AsyncIterator[Server]:
    repaired = asyncio.Event()

    async def answer(_: web.Request) -> web.Response:
        if hangs:
            await repaired.wait()
        return web.Response(text="planted-token-of-http")

    async with receiver(answer) as inbox:
        yield Server({"url": inbox.url, **SECRETS}, bodies=inbox.bodies)
        repaired.set()


class _Http:
    type = "http"

    def unreachable(self) -> dict[str, Any]:
        return {"url": "http://127.0.0.1:1/", **SECRETS}


class TestHttp(_Http, DeliverSuite):
    @asynccontextmanager
    async def server(self, *, hangs: bool = False) -> AsyncIterator[Server]:
        async with http_server(hangs) as server:
            yield server


class Lines(Server):
    async def delivered(self) -> list[bytes]:
        return [line for body in self.bodies for line in body.splitlines()]


class TestHttpBatches(_Http, DeliverBatchSuite):
    @asynccontextmanager
    async def server(self, *, hangs: bool = False) -> AsyncIterator[Server]:
        async with http_server(hangs) as server:
            yield Lines(server.connection, bodies=server.bodies)


class _Api(Source):
    def __init__(self, api: JsonApi) -> None:
        super().__init__(
            {"url": api.url, **SECRETS},
            {
                "path": "/cursor",
                "records": "data",
                "id": "id",
                "mode": {"type": "incremental", "field": "n", "values": "number", "parameter": "since"},
                "paging": {"type": "cursor", "cursor": "next"},
                "timeout_seconds": 2,
            },
        )
        self._api = api

    async def write(self, bodies: Sequence[bytes]) -> None:
        self._api.records += bodies


class TestHttpPolling(_Http, ReadBatchSuite):
    @asynccontextmanager
    async def source(self, *, hangs: bool = False) -> AsyncIterator[Source]:
        if hangs:
            async with http_server(hangs=True) as server:
                yield _Api(JsonApi(server.connection["url"]))
        else:
            async with json_api() as api:
                yield _Api(api)


class TestHttpCalls(_Http, CallSuite):
    @asynccontextmanager
    async def system(self, *, hangs: bool = False) -> AsyncIterator[Answers]:
        repaired = asyncio.Event()

        async def answer(request: web.Request) -> web.Response:
            if hangs:
                await repaired.wait()
            return web.Response(body=await request.read(), content_type="application/json")

        async with receiver(answer) as inbox:
            options = {"method": "POST", "path": "/echo", "body": {"value": "{{value}}"}}
            yield Answers({"url": inbox.url, **SECRETS}, options, inbox.bodies)
            repaired.set()


Sent = tuple[str, list[tuple[bytes, bytes]], bytes]


async def _sent(options: dict[str, Any], connection: dict[str, Any], **fields: Any) -> Sent:
    """What a receiver gets: the raw path, the raw headers and the body."""
    requests: list[Sent] = []

    async def answer(request: web.Request) -> web.Response:
        requests.append((request.raw_path, list(request.raw_headers), await request.read()))
        return web.Response()

    async with receiver(answer) as inbox:
        data = {"url": inbox.url, **connection}
        deliver = HttpDeliver(HttpConnection.model_validate(data), HttpOptions.model_validate(options))
        await deliver.open()
        try:
            await deliver.deliver(message(**fields))
        finally:
            await deliver.close()
    [request] = requests
    return request


def message(**fields: Any) -> Message:
    usual = {"pipeline_id": "p", "version": 1, "key": b"", "body": b"{}", "received_at": utc_now(), "slip": ()}
    return Message(**{"id": new_message_id(), "content_type": "application/json", **usual, **fields})


async def test_what_is_not_ascii_arrives() -> None:
    path, headers, _ = await _sent(
        {"path": "/notificações?q=São%20Paulo", "headers": {"X-Nome": "São Paulo"}},
        {"authentication": {"type": "bearer", "token": "chave-é"}, "secret_headers": {"X-Chave": "ção"}},
        content_type='text/plain; title="São"',
    )
    assert path == "/notifica%C3%A7%C3%B5es?q=S%C3%A3o%20Paulo"
    sent = {name.decode(): value for name, value in headers}
    assert sent["X-Nome"] == "São Paulo".encode()
    assert sent["X-Chave"] == "ção".encode()
    assert sent["Authorization"] == "Bearer chave-é".encode()
    assert sent["Content-Type"] == 'text/plain; title="São"'.encode()


async def test_a_message_that_no_header_can_describe_fails_for_good() -> None:
    with pytest.raises(DeliveryError) as refused:
        await _sent({}, {}, content_type="text/plain\r\nX-Admin: 1")
    assert (refused.value.reason, refused.value.retryable) == (Reason.MALFORMED, False)


ORDER = {
    "order": {"id": 2**63, "ref": "a/b?c&d=é#%41 {{x}}", "paid": True, "total": Decimal("12345678901234567890.10")},
    "tenant": "São Paulo",
    "lines": [{"sku": "x"}],
    "none": None,
    "dots": "..",
    "empty": "",
    "break": "a\r\nX-Admin: 1",
}
BODY = json.dumps(ORDER)


async def test_path_headers_and_body_take_what_a_message_has() -> None:
    order = message(body=BODY, key="chave é".encode(), version=7)
    path, raw_headers, body = await _sent(
        {
            "path": "/orders/{{order.id}}/{{ order.ref }}?paid={{order.paid}}&id={{$message.id}}&q={{empty}}",
            "headers": {
                "X-Tenant": "of {{tenant}}",
                "X-Key": "{{$message.key}}",
                "X-Empty": "{{empty}}",
                "X-One": "1",
            },
            "body": {
                "total": "{{order.total}}",
                "text": "{{order.id}} of {{tenant}}",
                "lines": "{{lines}}",
                "none": "{{none}}",
                "meta": ["{{$message.pipeline}}", "{{$message.version}}", "{{$message.received_at}}"],
            },
        },
        {"signing_secrets": {"k": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}},
        **{name: getattr(order, name) for name in ("id", "body", "key", "version", "received_at")},
    )
    ref = "a%2Fb%3Fc%26d%3D%C3%A9%23%2541%20%7B%7Bx%7D%7D"
    assert path == f"/orders/{2**63}/{ref}?paid=true&id={order.id}&q="
    headers = {name.decode(): value for name, value in raw_headers}
    assert headers["X-Tenant"] == "of São Paulo".encode()
    assert headers["X-Key"] == "chave é".encode()
    assert (headers["X-Empty"], headers["X-One"]) == (b"", b"1")
    assert headers["Content-Type"] == b"application/json"
    assert json.loads(body) == {
        "total": Decimal("12345678901234567890.10"),
        "text": f"{2**63} of São Paulo",
        "lines": [{"sku": "x"}],
        "none": None,
        "meta": ["p", 7, order.received_at],
    }
    timestamp = headers["webhook-timestamp"].decode()
    signature = headers["webhook-signature"].decode()
    key = webhook_signature.key_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    assert webhook_signature.is_valid([key], order.id, timestamp, signature, body)


@pytest.mark.parametrize(
    ("options", "body", "reason", "named"),
    [
        ({"path": "/{{order.missing}}"}, BODY, "template", "no field order.missing"),
        ({"path": "/{{lines}}"}, BODY, "template", "an object or a list"),
        ({"path": "/{{none}}"}, BODY, "template", "null"),
        ({"path": "/orders/{{dots}}/lines"}, BODY, "template", "lead elsewhere"),
        ({"path": "/orders/.{{empty}}./lines"}, BODY, "template", "lead elsewhere"),
        ({"path": "/orders/{{empty}}"}, BODY, "template", "empty"),
        ({"headers": {"X-A": "{{break}}"}}, BODY, "template", "line break"),
        ({"headers": {"X-A": "{{order}}"}}, BODY, "template", "an object or a list"),
        ({"body": {"a": ["{{missing}}"]}}, BODY, "template", "no field missing"),
        ({"path": "/{{id}}"}, b"no JSON", "not_json", "not JSON"),
        ({"body": ["{{a}}"] * 4}, b'{"a": "%s"}' % (b"a" * 900_000), "too_large", "larger than"),
    ],
)
async def test_a_message_that_does_not_fit_fails_for_good(
    options: dict[str, Any], body: bytes, reason: str, named: str
) -> None:
    with pytest.raises(DeliveryError, match=named) as refused:
        await _sent(options, {}, body=body)
    assert (refused.value.reason, refused.value.retryable, refused.value.about_message) == (reason, False, True)


async def test_what_headrace_knows_needs_no_json() -> None:
    path, _, body = await _sent({"path": "/{{$message.id}}"}, {}, body=b"no JSON", content_type="text/plain")
    assert (len(path), body) == (37, b"no JSON")


async def test_lines_of_a_batch_take_what_a_message_has() -> None:
    async with http_server(hangs=False) as server:
        options = {"body": {"n": "{{n}}", "id": "{{$message.id}}"}, "headers": {"X-Fixed": "1"}}
        client = TestHttpBatches().client(server.connection, options)
        messages = [message(body=body) for body in (b'{"n": 1}', b"{}", b'{"n": null}')]
        first, missing, last = await client.deliver_batch(messages)
        await client.close()
    assert isinstance(first, Receipt)
    assert isinstance(last, Receipt)
    assert isinstance(missing, DeliveryError)
    assert (missing.reason, missing.about_message) == ("template", True)
    [body] = server.bodies
    assert [json.loads(line) for line in body.splitlines()] == [
        {"n": 1, "id": messages[0].id},
        {"n": None, "id": messages[2].id},
    ]
