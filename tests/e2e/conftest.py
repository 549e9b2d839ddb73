from collections.abc import Iterator

import pytest
from aiohttp import web

from tests.e2e.matrix.running import Started
from tests.receiver import Receiver, receiver_in_thread


@pytest.fixture
def inbox() -> Iterator[Receiver]:
    """A receiver that accepts everything."""

    async def take(_: web.Request) -> web.Response:
        return web.Response()

    with receiver_in_thread(take) as server:
        yield server


@pytest.fixture(scope="module")
def servers_of_ends() -> Iterator[Started]:
    """Of the matrix; what starts them is ``start_servers``."""
    started: Started = {}
    yield started
    for server in reversed(started.values()):
        server.stop()
