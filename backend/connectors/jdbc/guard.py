"""The way of a JDBC driver to the network: a SOCKS server that checks each address right before it is connected to."""

import asyncio
import contextlib
import socket
import struct

from backend.network import outbound, tasks

_VERSION, _CONNECT, _NO_LOGIN = 5, 1, 0
_IPV4, _NAME, _IPV6 = 1, 3, 4
_GRANTED, _FORBIDDEN, _UNREACHABLE, _REFUSED = 0, 2, 4, 5
_PIECE = 65_536


class NetworkGuard:
    """Listens on loopback for the sockets of one process. ``forbidden`` says why it has refused an address."""

    def __init__(self) -> None:
        self.forbidden = ""
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        """The port. It listens until it is closed."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def close(self) -> None:
        self._server.close()
        for connection in self._connections:
            connection.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._connect(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # either side has gone
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, methods = await reader.readexactly(2)
        await reader.readexactly(methods)
        writer.write(bytes((_VERSION, _NO_LOGIN)))
        _, command, _, kind = await reader.readexactly(4)
        host = await _host(reader, kind)
        (port,) = struct.unpack("!H", await reader.readexactly(2))
        result, streams = await self._opened(host, port) if command == _CONNECT else (_REFUSED, None)
        writer.write(bytes((_VERSION, result, 0, _IPV4)) + bytes(6))
        if streams is not None:
            there, back = streams
            pipes = [asyncio.create_task(_pipe(reader, back)), asyncio.create_task(_pipe(there, writer))]
            try:
                await asyncio.wait(pipes, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await tasks.cancel(*pipes)
                back.transport.abort()

    async def _opened(
        self, host: str, port: int
    ) -> tuple[int, tuple[asyncio.StreamReader, asyncio.StreamWriter] | None]:
        try:
            address = await asyncio.to_thread(outbound.outbound_policy().address_of, host)
            return _GRANTED, await asyncio.open_connection(address, port)
        except outbound.ForbiddenAddressError as error:
            self.forbidden = str(error)
            return _FORBIDDEN, None
        except ConnectionRefusedError:
            return _REFUSED, None
        except OSError:
            return _UNREACHABLE, None


async def _host(reader: asyncio.StreamReader, kind: int) -> str:
    if kind == _NAME:
        (length,) = await reader.readexactly(1)
        return (await reader.readexactly(length)).decode("ascii", "replace")
    family, length = (socket.AF_INET, 4) if kind == _IPV4 else (socket.AF_INET6, 16)
    return socket.inet_ntop(family, await reader.readexactly(length))


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()
