"""A real HTTP receiver whose answers a test scripts."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.Response]]


@dataclass
class Receiver:
    url: str
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)


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
