"""The connections of a service's clients: accepting, limiting, checking and draining them."""

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import time
from abc import abstractmethod
from collections import Counter as Counts
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from prometheus_client import Counter, Gauge

from backend.kafka.server.listen import HostPort
from backend.kafka.server.memory import RequestMemory, return_unused
from backend.kafka.wire.framing import SMALL, FrameProtocol
from backend.kafka.wire.primitives import MalformedError

log = logging.getLogger(__name__)

_CHECK_SECONDS = 1.0
_BACKLOG = 1024
_BYTES_PER_SECOND = 16 * 1024
"""A frame that comes faster may take longer than ``Limits.frame_seconds``. A client that sends 1 MB more slowly gives
up itself before its last byte is sent."""
_PERIOD_SECONDS = 10.0
_LINES = 10
"""How many lines the log gets in this period for each reason to close connections."""
_MANY_CONNECTIONS, _MUCH_MEMORY = 200, 32 * 1024 * 1024
"""What has to be freed in this period before it is returned to the system: that takes some milliseconds."""

_TLS = b"\x16\x03"
_HTTP = (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"PRI ")
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL")


@dataclass(frozen=True)
class Limits:
    """What clients may take. ``memory_bytes`` bounds the requests of all connections together. ``frame_seconds`` is
    how long the rest of a frame may take; more if it comes steadily and memory is not short."""

    connections: int
    frame_bytes: int
    memory_bytes: int
    connections_per_address: int | None = None
    login_seconds: float = 30.0
    frame_seconds: float = 30.0
    idle_seconds: float = 600.0


class RefusedError(MalformedError):
    """``reason`` is a label of the metric."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class ServerConnection(FrameProtocol):
    """One client's connection, whose requests count as memory until ``request_done``."""

    def __init__(self, listener: "Listener[Any]") -> None:
        super().__init__(listener.limits.frame_bytes)
        self.peer = "?"
        self.host = "?"
        self.pending_bytes = 0
        """Bytes of requests that are not done."""
        self._listener = listener
        self._limits = listener.limits
        self._memory = listener.memory
        self._reading_bytes = 0
        self._is_open = self._has_begun = False
        self._opened = self._active = time.monotonic()
        self._bytes_seen = 0
        self._holds: set[str] = set()
        self._held_since = 0.0
        self._securing: asyncio.Task[None] | None = None

    # -- what subclasses define

    @abstractmethod
    def request_received(self, frame: bytearray) -> None:
        """Called with each request. Raises MalformedError."""

    @property
    @abstractmethod
    def is_logged_in(self) -> bool:
        """Whether the client may stay: it has signed in, or was served without."""

    @property
    def may_send_much(self) -> bool:
        """Whether large requests are accepted."""
        return self.is_logged_in

    @property
    @abstractmethod
    def is_idle(self) -> bool:
        """Whether every request has been answered."""

    @abstractmethod
    def closed(self) -> None:
        """Called once, when the connection is closed."""

    # -- opening and closing

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._is_open = True
        if self._securing is None:
            self._enter(transport.get_extra_info("peername"))
        elif self.is_closed:
            self.transport.abort()
        elif self._holds:
            self.transport.pause_reading()

    def begin_tls(self, connection: socket.socket, tls: ssl.SSLContext) -> None:
        """Called first with a connection that has to begin TLS."""
        self._enter(connection.getpeername())
        if self.is_closed:
            connection.close()
        else:
            self._securing = asyncio.create_task(self._secure(connection, tls))

    async def _secure(self, connection: socket.socket, tls: ssl.SSLContext) -> None:
        loop = asyncio.get_running_loop()
        seconds = self._limits.login_seconds + _CHECK_SECONDS
        try:
            await loop.connect_accepted_socket(lambda: self, connection, ssl=tls, ssl_handshake_timeout=seconds)
        except ssl.SSLError as error:
            reason = error.reason or "no reason given"
            text = "It does not speak TLS, which this port requires" if reason in _NO_TLS else "TLS cannot begin"
            self.refuse("tls", f"{text} ({reason}).")
        except OSError:
            self.close()

    def _enter(self, address: Any) -> None:
        self.host, port, *_ = address or ("?", 0)
        self.peer = f"{self.host}:{port}"
        self._listener.opened(self)

    def connection_lost(self, error: Exception | None) -> None:
        """The subclass closes the connection, at once or later."""
        self._drop_half()

    def close(self) -> None:
        """Closes the connection at once; may be called several times."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._is_open:
            self.transport.abort()
        elif self._securing is not None:
            self._securing.cancel()
        self._drop_half()
        self._memory.give(self.pending_bytes)
        self.pending_bytes = 0
        self.closed()
        self._listener.closed(self)

    def _drop_half(self) -> None:
        self.drop_half()
        self._memory.leave(self)
        self._memory.give(self._reading_bytes)
        self._reading_bytes = 0

    def malformed(self, error: MalformedError) -> None:
        if isinstance(error, RefusedError):
            self._listener.refused(error.reason, f"Client {self.peer}: {error} The connection is closed.")
        else:
            text = f"Client {self.peer} sent malformed data: {error} The connection is closed."
            self._listener.refused("malformed", text)

    def refuse(self, reason: str, text: str) -> None:
        """Closes the connection; ``reason`` is a label of the metric, ``text`` a sentence for the log."""
        self._listener.refused(reason, f"Client {self.peer}: {text} The connection is closed.")
        self.close()

    # -- reading

    def announced(self, size: int) -> None:
        head = size.to_bytes(4, "big", signed=True)
        if not self._has_begun and head.startswith(_TLS):
            raise RefusedError("tls", "It speaks TLS, but this is a plain port.")
        if not self._has_begun and head in _HTTP:
            raise RefusedError("http", "It speaks HTTP, but this is a port for Kafka clients.")
        super().announced(size)
        if size > SMALL and not self.may_send_much:
            text = f"It announced a request of {size} bytes; until it has signed in, the limit is {SMALL}."
            raise RefusedError("size", text)

    def room(self, held: int, size: int) -> int:
        """Grows with what has come: whatever a client announces costs nothing."""
        wanted = min(max(2 * held, SMALL), size)
        is_granted = self._memory.take(self, wanted - self._reading_bytes)
        if is_granted:
            self._reading_bytes = wanted
        self.hold("room", not is_granted)
        return wanted if is_granted else held

    def frame_received(self, frame: bytearray) -> None:
        self._has_begun = True
        if self._reading_bytes:
            self._reading_bytes = 0
            self._memory.complete(self)
        else:
            self._memory.add(len(frame))
        self.pending_bytes += len(frame)
        if self._memory.is_short:
            self.hold("memory", True)
        self.request_received(frame)

    def request_done(self, size: int) -> None:
        """A request of so many bytes has been answered."""
        if self.is_closed:
            return
        self.pending_bytes -= size
        self._memory.give(size)
        if self._holds and not (self.pending_bytes and self._memory.is_short):
            self.hold("memory", False)

    def hold(self, why: str, is_held: bool) -> None:
        """Reading pauses as long as there is a reason."""
        if is_held == (why in self._holds):
            return
        was_held = bool(self._holds)
        (self._holds.add if is_held else self._holds.remove)(why)
        if was_held == bool(self._holds) or not self._is_open or self.transport.is_closing():
            return
        now = time.monotonic()
        if was_held:
            if self.half_since is not None:
                self.half_since += now - max(self._held_since, self.half_since)
            self.transport.resume_reading()
        else:
            self._held_since = now
            self.transport.pause_reading()

    def stop_reading(self) -> None:
        """Accepts no further requests; called while the service shuts down."""
        self.hold("drain", True)

    # -- deadlines

    def check(self, now: float) -> None:
        """Called about once a second with the monotonic time."""
        limits = self._limits
        if not self._memory.is_short:
            self.hold("memory", False)
        if self.bytes_read != self._bytes_seen or not self.is_idle:
            self._bytes_seen, self._active = self.bytes_read, now
        if not self.is_logged_in and now - self._opened > limits.login_seconds:
            self.refuse("login", f"It has not signed in within {limits.login_seconds:g} seconds.")
        elif self.half_since is not None and not self._holds and now - self.half_since > self._frame_seconds():
            text = f"After {now - self.half_since:.0f} seconds it has sent {self.half_held} bytes of a request."
            self.refuse("slow", text)
        elif now - self._active > limits.idle_seconds:
            self._listener.count("idle")
            self.close()

    def _frame_seconds(self) -> float:
        extra = 0.0 if self._memory.is_awaited else self.half_held / _BYTES_PER_SECOND
        return self._limits.frame_seconds + extra


class _TlsEntrance(asyncio.Protocol):
    """Takes a connection's socket before TLS begins, and hands it on. A server that begins TLS by itself would neither
    tell of connections that never complete it, nor close them in time."""

    def __init__(self, tls: ssl.SSLContext, connect: Callable[[], ServerConnection]) -> None:
        self._tls = tls
        self._connect = connect

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        with contextlib.suppress(OSError):  # the client has gone, or there are too many open files
            connection = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
            self._connect().begin_tls(connection, self._tls)
        cast(asyncio.Transport, transport).abort()


C = TypeVar("C", bound=ServerConnection)


class Listener(Generic[C]):
    """Accepts connections. ``connect`` makes one; ``refusals`` counts those that are closed, by reason."""

    def __init__(
        self, connect: Callable[["Listener[C]"], C], *, limits: Limits, count: Gauge, refusals: Counter
    ) -> None:
        self.limits = limits
        self.memory = RequestMemory(limits.memory_bytes, limits.frame_bytes + 4)
        self.clients: set[C] = set()
        self.is_draining = False
        self._connect = connect
        self._count = count
        self._refusals = refusals
        self._lines: Counts[str] = Counts()
        self._closed = 0
        self._period_began = time.monotonic()
        self._strangers: OrderedDict[C, None] = OrderedDict()
        self._addresses: Counts[str] = Counts()
        self._server: asyncio.Server | None = None
        self._checking: asyncio.Task[None] | None = None

    async def start(self, address: HostPort, tls: ssl.SSLContext | None) -> None:
        """Raises OSError when the address is already in use."""

        def accept() -> asyncio.BaseProtocol:
            return self._connect(self) if tls is None else _TlsEntrance(tls, lambda: self._connect(self))

        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(accept, address.host, address.port, backlog=_BACKLOG)
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

    # -- called by connections

    def opened(self, client: C) -> None:
        self.clients.add(client)
        self._count.set(len(self.clients))
        self._strangers[client] = None
        self._addresses[client.host] += 1
        limits = self.limits
        if self.is_draining:
            client.close()
        elif limits.connections_per_address and self._addresses[client.host] > limits.connections_per_address:
            client.refuse("limit", f"Its address has {limits.connections_per_address} connections already.")
        elif len(self.clients) > limits.connections:
            # Those that have not signed in make room for others, which otherwise they could lock out.
            stranger = self._oldest_stranger() or client
            stranger.refuse("limit", f"There are {limits.connections} connections, and it has not signed in yet.")

    def _oldest_stranger(self) -> C | None:
        while self._strangers:
            client, _ = self._strangers.popitem(last=False)
            if not client.is_logged_in:
                return client
        return None

    def closed(self, client: C) -> None:
        self._closed += 1
        self.clients.discard(client)
        self._strangers.pop(client, None)
        self._count.set(len(self.clients))
        self._addresses[client.host] -= 1
        if not self._addresses[client.host]:
            del self._addresses[client.host]

    def count(self, reason: str) -> None:
        self._refusals.labels(reason).inc()

    def refused(self, reason: str, line: str) -> None:
        """Counts and logs it. Of many, the log gets a few lines and their number."""
        self.count(reason)
        self._lines[reason] += 1
        if self._lines[reason] <= _LINES:
            log.warning("%s", line)

    # -- checking

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            now = time.monotonic()
            for client in list(self.clients):
                client.check(now)
            if now - self._period_began > _PERIOD_SECONDS:
                self._period_began = now
                self._sum_up()
                self._tidy()

    def _sum_up(self) -> None:
        for reason, lines in self._lines.items():
            if lines > _LINES:
                log.warning("%d more connections were closed for this reason: %s.", lines - _LINES, reason)
        self._lines.clear()

    def _tidy(self) -> None:
        memory = self.memory
        if self._closed >= _MANY_CONNECTIONS or memory.peak - memory.used > _MUCH_MEMORY:
            return_unused()
            memory.peak = memory.used
        self._closed = 0
