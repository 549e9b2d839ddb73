"""A real HTTP receiver whose answers the test determines."""

import asyncio
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from aiohttp import web

from tests.waiting import LIMIT_SECONDS, PATIENCE

Answer = Callable[[web.Request], Awaitable[web.Response]]


@dataclass
class Receiver:
    url: str
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    clients: list[str] = field(default_factory=list)
    """The names in the client certificates; empty where there was none."""

    async def received(self, count: int) -> None:
        """Waits until this many requests have arrived."""
        async with asyncio.timeout(LIMIT_SECONDS * PATIENCE):
            while len(self.bodies) < count:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def receiver(answer: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    """Serves on a free port, with TLS if there is a context, and records every request before answering it."""
    running = Receiver("")

    async def handle(request: web.Request) -> web.Response:
        running.bodies.append(await request.read())
        running.headers.append(dict(request.headers))
        running.clients.append(client_of(request))
        return await answer(request)

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    host, port = runner.addresses[0][:2]
    running.url = f"{'https' if tls else 'http'}://{host}:{port}/"
    try:
        yield running
    finally:
        await runner.cleanup()


def client_of(request: web.Request) -> str:
    """The name in the client's certificate, or nothing."""
    certificate = request.get_extra_info("peercert") or {}
    return "".join(value for names in certificate.get("subject", ()) for _, value in names)


@contextmanager
def receiver_in_thread(answer: Answer) -> Iterator[Receiver]:
    """The same in a separate thread, so that a test may block."""
    ready = threading.Event()
    started: list[tuple[Receiver, asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        async with receiver(answer) as running:
            stop = asyncio.Event()
            started.append((running, asyncio.get_running_loop(), stop))
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(LIMIT_SECONDS)
    [(running, loop, stop)] = started
    try:
        yield running
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
