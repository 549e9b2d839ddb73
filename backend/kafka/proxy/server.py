"""The process of one proxy."""

import asyncio
import logging
import signal

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
from backend.kafka.server.connections import Listener
from backend.kafka.server.http import serve_http
from backend.network import tasks

log = logging.getLogger(__name__)


class Proxy:
    """Accepts connections until it is stopped, then waits until pending requests are answered."""

    def __init__(self, config: ProxyConfig) -> None:
        self.context = Context(config, Topology(), Nodes(config), Activity(), tokens_of(config))
        self.listener: Listener[ClientConnection] = Listener(
            lambda listener: ClientConnection(self.context, listener),
            limits=config.limits,
            count=metrics.CONNECTIONS,
            refusals=metrics.REFUSED,
        )
        metrics.REQUEST_BYTES.set_function(lambda: self.listener.memory.used)

    async def run(self) -> None:
        """Runs until SIGTERM or SIGINT. Raises OSError when the address is already in use."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        config = self.context.config
        tls = config.tls.clients
        await self.listener.start(config.listen, tls.context if tls is not None else None)
        works = [self.context.nodes.watch_peers(), self.context.activity.keep_sampling()]
        if config.operations is not None:
            works.append(serve_http(self._operations(), config.operations))
        REGISTRY.register(metrics.TallyCollector(self.context.activity))
        background = [asyncio.create_task(work) for work in works]
        log.info("The proxy listens at %s.", config.listen)
        await stop.wait()
        await self.listener.drain(config.drain_timeout_ms / 1000)
        await tasks.cancel(*background)

    def _operations(self) -> Operations:
        listener = self.listener
        return Operations(
            self.context, connections=lambda: len(listener.clients), is_draining=lambda: listener.is_draining
        )
