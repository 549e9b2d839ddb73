"""Servers with which nothing can be done, made of Python's sockets: what the bad days of connectors need."""

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.certificates import Authority
from tests.waiting import LIMIT_SECONDS

_PAUSE_SECONDS = 0.5
_HTTP = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000000000\r\n\r\n["
_BEGINNINGS = {
    "kafka": b"\x00\x00\x10\x00",
    "mongodb": b"\x00\x10\x00\x00",
    "mqtt": b"\x20\xff\xff\x7f",
    "mysql": b"\x50\x00\x00\x00",
    "nats": b"INFO {",
    "postgresql": b"R\x00\x01\x00\x00",
    "pubsub": b"\x00\x00\xff\x04\x00\x00\x00\x00\x00",
    "rabbitmq": b"\x01\x00\x00\x00\x00\x10\x00",
    "redis_stream": b"+",
    "sftp": b"",
}
"""How an answer begins that announces more than ever comes, by the protocol."""
_NATS_INFO = b'INFO {"server_id":"x","version":"2.10.0","max_payload":1000,"headers":true,"tls_required":true}\r\n'
_MYSQL_GREETING = (
    b"\x0a8.0.30\x00\x01\x00\x00\x0012345678\x00\xff\xff\xff\x02\x00\xff\xdf\x15"
    + bytes(10)
    + b"123456789012\x00mysql_native_password\x00"
)


@dataclass(frozen=True)
class _Before:
    """What is said before encryption begins."""

    greeting: bytes = b""
    request: int = 0
    """So many bytes are what the client asks for encryption with."""
    answer: bytes = b""


_BEFORE_ENCRYPTION = {
    "": _Before(),
    "mysql": _Before(len(_MYSQL_GREETING).to_bytes(3, "little") + b"\x00" + _MYSQL_GREETING, 36),
    "nats": _Before(_NATS_INFO),
    "postgresql": _Before(request=8, answer=b"S"),
}
"""By the protocol; "" where encryption begins with the connection."""

_Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class BadServers:
    """The ports of servers on loopback that accept every connection."""

    authority: Authority
    """Signed the certificate that has expired."""
    refusing: int = 0
    """A port on which nobody listens."""
    silent: int = 0
    """Never says anything."""
    endless: dict[str, int] = field(default_factory=dict)
    """By the protocol: begins an answer, of which a byte comes now and then; "" for HTTP."""
    expired: dict[str, int] = field(default_factory=dict)
    """By the protocol: shows a certificate that has expired; "" where encryption begins with the connection."""


@contextlib.contextmanager
def bad_servers(folder: Path) -> Iterator[BadServers]:
    """They run in a thread of their own. Certificates are written to the folder."""
    servers = BadServers(Authority(folder))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*servers.authority.issue("expired", expired=True))
    ready, stop = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        async with contextlib.AsyncExitStack() as running:

            async def port_of(talk: _Talk) -> int:
                return await _port(running, talk)

            servers.silent = await port_of(_silence)
            for protocol, beginning in {"": _HTTP, **_BEGINNINGS}.items():
                servers.endless[protocol] = await port_of(_trickle(beginning))
            for protocol, before in _BEFORE_ENCRYPTION.items():
                servers.expired[protocol] = _encrypted_port(running, context, before)
            servers.refusing = await _port_of_nobody()
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(LIMIT_SECONDS)
    try:
        yield servers
    finally:
        loops[0].call_soon_threadsafe(stop.set)
        thread.join()


async def _port(running: contextlib.AsyncExitStack, talk: _Talk) -> int:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, ConnectionError):
            await talk(reader, writer)
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, backlog=500)
    running.callback(server.close)
    port: int = server.sockets[0].getsockname()[1]
    return port


async def _port_of_nobody() -> int:
    async with await asyncio.start_server(_silence, "127.0.0.1", 0) as server:
        port: int = server.sockets[0].getsockname()[1]
        return port


async def _silence(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    while await reader.read(65_536):
        pass


def _trickle(beginning: bytes) -> _Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1) if beginning == _HTTP else None
        writer.write(beginning)
        while True:
            await asyncio.sleep(_PAUSE_SECONDS)
            writer.write(b" ")
            await writer.drain()

    return talk


def _encrypted_port(running: contextlib.AsyncExitStack, context: ssl.SSLContext, before: _Before) -> int:
    """Streams would read what belongs to TLS, which a client may send with its request for it."""
    listening = running.enter_context(socket.create_server(("127.0.0.1", 0), backlog=500))
    listening.setblocking(False)
    loop, talks = asyncio.get_running_loop(), set()

    async def talk(client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            await loop.sock_sendall(client, before.greeting)
            left = before.request
            while left and (part := await loop.sock_recv(client, left)):
                left -= len(part)
            await loop.sock_sendall(client, before.answer)
            await loop.connect_accepted_socket(asyncio.Protocol, client, ssl=context)

    async def accept() -> None:
        while True:
            client, _ = await loop.sock_accept(listening)
            talks.add(asyncio.create_task(talk(client)))

    accepting = asyncio.create_task(accept())
    running.callback(accepting.cancel)
    port: int = listening.getsockname()[1]
    return port
