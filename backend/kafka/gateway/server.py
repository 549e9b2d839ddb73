"""The process of one node of the gateway."""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from backend.kafka.gateway import metrics
from backend.kafka.gateway.apis import APIS
from backend.kafka.gateway.catalog import Catalog
from backend.kafka.gateway.config import GatewayConfig
from backend.kafka.gateway.connection import MAX_FRAME, GatewayConnection
from backend.kafka.gateway.context import Context
from backend.kafka.gateway.groups.coordinator import Coordinator
from backend.kafka.gateway.logs import Logs
from backend.kafka.gateway.nodes import Nodes
from backend.kafka.gateway.ports import Accounts, Directory, GroupStore, Node, Storage, StorageError, StoreError
from backend.kafka.gateway.quotas import Quotas
from backend.kafka.server.connections import Limits, Listener
from backend.kafka.server.http import serve_http
from backend.network import tasks

log = logging.getLogger(__name__)

_REVOKED_SECONDS = 5.0
_RETRY_SECONDS = 1.0
_THREADS = 32
_REQUESTS_BYTES = 64 * 1024 * 1024
"""Memory for the requests of all clients."""


class Gateway:
    """Serves clients until it is stopped. ``http`` makes the application of its HTTP port, if it has one."""

    def __init__(
        self,
        config: GatewayConfig,
        *,
        storage: Storage,
        accounts: Accounts,
        directory: Directory,
        groups: GroupStore,
        cluster_id: str,
        http: Callable[[Context], Any],
    ) -> None:
        self._config = config
        self._http = http
        nodes = Nodes(Node(config.node_id, config.advertised), directory)
        catalog = Catalog(storage)
        self.listener: Listener[GatewayConnection] = Listener(
            lambda listener: GatewayConnection(self.context, listener),
            limits=Limits(config.connection_limit, MAX_FRAME, _REQUESTS_BYTES),
            count=metrics.CONNECTIONS,
            refusals=metrics.REFUSED,
        )
        self.context = Context(
            storage=storage,
            accounts=accounts,
            catalog=catalog,
            logs=Logs(storage, cache_bytes=config.cache_bytes, cache_disk_bytes=config.cache_disk_bytes),
            nodes=nodes,
            coordinator=Coordinator(nodes, groups, catalog),
            quotas=Quotas(config.bytes_per_second),
            apis=APIS,
            compression=config.compression,
            cluster_id=cluster_id,
            is_draining=lambda: self.listener.is_draining,
        )

    async def run(self) -> None:
        """Runs until SIGTERM or SIGINT. Raises OSError when an address is already in use."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        # Threads read files and wait for the database; with the default of a few, reads would hold up heartbeats.
        loop.set_default_executor(ThreadPoolExecutor(_THREADS))
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        context, config = self.context, self._config
        if not await self._succeeds(context.catalog.refresh, stop) or not await self._succeeds(
            context.nodes.beat, stop
        ):
            return
        works = (
            context.catalog.keep_refreshed(),
            context.nodes.keep_beating(),
            context.coordinator.keep_sweeping(),
            self._close_revoked(),
            serve_http(self._http(context), config.http, config.tls),
        )
        await self.listener.start(config.listen, config.tls.context if config.tls is not None else None)
        background = [asyncio.create_task(work) for work in works]
        log.info("Node %d of the read gateway listens at %s.", config.node_id, config.listen)
        stopping = asyncio.create_task(stop.wait())
        # One that has failed ends the process, which is then started again: without it the node would serve old news.
        ended, _ = await asyncio.wait([stopping, *background], return_when=asyncio.FIRST_COMPLETED)
        # The others take over before the clients come to them.
        background[1].cancel()
        await context.nodes.leave()
        await self.listener.drain(config.drain_seconds)
        await tasks.cancel(stopping, *background)
        for task in ended - {stopping}:
            task.result()

    async def _succeeds(self, work: Callable[[], Awaitable[None]], stop: asyncio.Event) -> bool:
        """Tries until it works, or the process is to stop."""
        while not stop.is_set():
            try:
                await work()
            except (StorageError, StoreError) as error:
                log.warning("The read gateway cannot start yet: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return True
        return False

    async def _close_revoked(self) -> None:
        """Closes the connections of keys that no longer work."""
        while True:
            await asyncio.sleep(_REVOKED_SECONDS)
            keys = {client.client.account.key for client in self.listener.clients if client.client is not None}
            try:
                revoked = await self.context.accounts.revoked(keys) if keys else set()
            except StoreError:
                continue
            for client in list(self.listener.clients):
                if client.client is not None and client.client.account.key in revoked:
                    client.refuse("revoked", "Its API key was revoked or has expired.")
