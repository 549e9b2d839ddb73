"""The connections of a service's clients: accepting, limiting, checking and draining them."""

import asyncio
import logging
import ssl
import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from prometheus_client import Counter, Gauge

from backend.kafka.server.listen import HostPort
from backend.kafka.wire.framing import FrameProtocol

log = logging.getLogger(__name__)

_CHECK_SECONDS = 1.0
_BACKLOG = 1024


class ServerConnection(FrameProtocol):
    """One client's connection. ``refused`` counts connections that are closed because of an error, by reason."""

    def __init__(self, max_frame: int, refused: Counter) -> None:
        super().__init__(max_frame)
        self._refused = refused
        self.peer = "?"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        host, port, *_ = transport.get_extra_info("peername") or ("?", 0)
        self.peer = f"{host}:{port}"

    def malformed(self, reason: str) -> None:
        log.warning("Client %s sent malformed data: %s The connection is closed.", self.peer, reason)
        self._refused.labels("malformed").inc()

    def refuse(self, reason: str, text: str) -> None:
        """Closes the connection; ``reason`` is a label of the metric, ``text`` a sentence for the log."""
        log.warning("Client %s: %s The connection is closed.", self.peer, text)
        self._refused.labels(reason).inc()
        self.close()

    def stop_reading(self) -> None:
        """Accepts no further requests; called while the service shuts down."""
        self.transport.pause_reading()

    @property
    @abstractmethod
    def is_idle(self) -> bool:
        """Whether every request has been answered."""

    @abstractmethod
    def check(self, now: float) -> None:
        """Called about once a second with the monotonic time."""

    @abstractmethod
    def close(self) -> None:
        """Closes the connection at once; may be called several times."""


C = TypeVar("C", bound=ServerConnection)


class Listener(Generic[C]):
    """Accepts connections. ``connect`` makes one; it is given what has to be called when the connection closes."""

    def __init__(self, connect: Callable[[Callable[[C], None]], C], *, limit: int, count: Gauge) -> None:
        self._connect = connect
        self._limit = limit
        self._count = count
        self._server: asyncio.Server | None = None
        self._checking: asyncio.Task[None] | None = None
        self.clients: set[C] = set()
        self.is_draining = False

    async def start(self, address: HostPort, tls: ssl.SSLContext | None) -> None:
        """Raises OSError when the address is already in use."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, address.host, address.port, ssl=tls, backlog=_BACKLOG)
        self._checking = asyncio.create_task(self._check())

    async def drain(self, seconds: float) -> None:
        """Accepts nothing more, waits until pending requests are answered, and closes all connections."""
        self.is_draining = True
        if self._server is not None:
            self._server.close()
        for client in self.clients:
            client.stop_reading()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not all(client.is_idle for client in self.clients):
            await asyncio.sleep(0.02)
        for client in list(self.clients):
            client.close()
        if self._checking is not None:
            self._checking.cancel()

    def _accept(self) -> FrameProtocol:
        client = self._connect(self._closed)
        self.clients.add(client)
        self._count.set(len(self.clients))
        if len(self.clients) > self._limit:
            text = f"There are already {self._limit} connections (connection_limit)."
            asyncio.get_running_loop().call_soon(client.refuse, "limit", text)
        return client

    def _closed(self, client: C) -> None:
        self.clients.discard(client)
        self._count.set(len(self.clients))

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            now = time.monotonic()
            for client in list(self.clients):
                client.check(now)
