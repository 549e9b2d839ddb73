import asyncio
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web

from backend.runtime.layout import Layout
from tests.installation import Installation
from tests.receiver import Receiver, receiver


@pytest.fixture(scope="session")
def installation(project_layout: Layout) -> Iterator[Installation]:
    var = Path(tempfile.mkdtemp(prefix="headrace-e2e-"))
    var.chmod(0o755)  # PostgreSQL may run as another user
    (var / "jars").symlink_to(project_layout.jars)
    found = Installation(var)
    try:
        found.up()
        yield found
    finally:
        found.down()
    shutil.rmtree(var)


@pytest.fixture
def inbox() -> Iterator[Receiver]:
    """A receiver that takes everything; it lives in a thread, so that a test may block."""

    async def take(_: web.Request) -> web.Response:
        return web.Response()

    started = threading.Event()
    found: list[Receiver] = []

    async def serve() -> None:
        nonlocal stop
        stop = asyncio.Event()
        loops.append(asyncio.get_running_loop())
        async with receiver(take) as running:
            found.append(running)
            started.set()
            await stop.wait()

    stop = asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []
    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(10)
    yield found[0]
    loops[0].call_soon_threadsafe(stop.set)
    thread.join()
