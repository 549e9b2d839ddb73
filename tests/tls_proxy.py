"""Ends TLS in front of a server on loopback whose build for tests has none."""

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import LIMIT_SECONDS


@contextmanager
def tls_proxy(target: int, certificate: Path, key: Path, protocol: str = "") -> Iterator[int]:
    """Gives its port. ``protocol`` is offered by ALPN."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    if protocol:
        context.set_alpn_protocols([protocol])
    ready = threading.Event()
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Event, int]] = []

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inside, outside = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(copy(reader, outside), copy(inside, writer), return_exceptions=True)

    async def serve() -> None:
        listener = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=context)
        running.append((asyncio.get_running_loop(), stop := asyncio.Event(), listener.sockets[0].getsockname()[1]))
        ready.set()
        await stop.wait()
        listener.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    ready.wait(LIMIT_SECONDS)
    loop, stop, number = running[0]
    try:
        yield number
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
