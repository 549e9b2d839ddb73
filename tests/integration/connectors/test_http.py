"""The HTTP connector, against a real HTTP server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from tests.integration.connectors.suites import DeliverBatchSuite, DeliverSuite, Server
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
