"""The process of one proxy."""

import asyncio
import logging
import signal
import time

import uvicorn
from prometheus_client import REGISTRY

from backend.kafka.proxy import metrics
from backend.kafka.proxy.activity import Activity
from backend.kafka.proxy.client_connection import ClientConnection
from backend.kafka.proxy.config import ProxyConfig
from backend.kafka.proxy.context import Context
from backend.kafka.proxy.nodes import Nodes
from backend.kafka.proxy.operations import Operations
from backend.kafka.proxy.own_connection import tokens_of
from backend.kafka.proxy.topology import Topology
from backend.kafka.wire.framing import FrameProtocol

log = logging.getLogger(__name__)

_CHECK_SECONDS = 1.0
_BACKLOG = 1024


class Proxy:
    """Accepts connections until it is stopped, then waits until pending requests are answered."""

    def __init__(self, config: ProxyConfig) -> None:
        self.context = Context(config, Topology(), Nodes(config), Activity(), tokens_of(config))
        self.clients: set[ClientConnection] = set()
        self.is_draining = False

    async def run(self) -> None:
        """Runs until SIGTERM or SIGINT. Raises OSError when the address is already in use."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        config = self.context.config
        tls = config.tls.clients
        server = await loop.create_server(
            self._accept,
            config.listen.host,
            config.listen.port,
            ssl=tls.context if tls is not None else None,
            backlog=_BACKLOG,
        )
        works = (
            self.context.nodes.watch_peers(),
            self._check(),
            self.context.activity.keep_sampling(),
            self._operations(),
        )
        REGISTRY.register(metrics.TallyCollector(self.context.activity))
        background = [asyncio.create_task(work) for work in works]
        log.info("The proxy listens at %s.", config.listen)
        await stop.wait()
        self.is_draining = True
        server.close()
        await self._drain()
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)

    def _accept(self) -> FrameProtocol:
        client = ClientConnection(self.context, self._closed)
        self.clients.add(client)
        metrics.CONNECTIONS.set(len(self.clients))
        if len(self.clients) > self.context.config.connection_limit:
            text = f"There are already {self.context.config.connection_limit} connections (connection_limit)."
            asyncio.get_running_loop().call_soon(client.refuse, "limit", text)
        return client

    def _closed(self, client: ClientConnection) -> None:
        self.clients.discard(client)
        metrics.CONNECTIONS.set(len(self.clients))

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            now = time.monotonic()
            for client in list(self.clients):
                client.check(now)

    async def _drain(self) -> None:
        for client in self.clients:
            client.stop_reading()
        deadline = time.monotonic() + self.context.config.drain_timeout_ms / 1000
        while time.monotonic() < deadline and not all(client.is_idle for client in self.clients):
            await asyncio.sleep(0.02)
        for client in list(self.clients):
            client.close()

    async def _operations(self) -> None:
        address = self.context.config.operations
        if address is None:
            return
        config = uvicorn.Config(Operations(self), host=address.host, port=address.port, access_log=False)
        config.lifespan, config.log_level = "off", "warning"
        server = uvicorn.Server(config)
        await server._serve()
