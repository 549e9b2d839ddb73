"""A real HTTP receiver whose answers a test scripts."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.Response]]


@dataclass
class Receiver:
    url: str
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    async def received(self, count: int) -> None:
        """Returns once so many requests have come."""
        async with asyncio.timeout(60):
            while len(self.bodies) < count:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def receiver(answer: Answer) -> AsyncIterator[Receiver]:
    """Serves on a free port; notes every request before it answers."""
    found = Receiver("")

    async def handle(request: web.Request) -> web.Response:
        found.bodies.append(await request.read())
        found.headers.append(dict(request.headers))
        return await answer(request)

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    found.url = f"http://{host}:{port}/"
    try:
        yield found
    finally:
        await runner.cleanup()


@contextmanager
def receiver_in_thread(answer: Answer) -> Iterator[Receiver]:
    """The same in a thread of its own, so that a test may block."""
    ready = threading.Event()
    found: list[tuple[Receiver, asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        async with receiver(answer) as running:
            stop = asyncio.Event()
            found.append((running, asyncio.get_running_loop(), stop))
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(10)
    [(running, loop, stop)] = found
    try:
        yield running
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
