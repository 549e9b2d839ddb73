from collections.abc import Iterator

import pytest
from aiohttp import web

from tests.receiver import Receiver, receiver_in_thread


@pytest.fixture
def inbox() -> Iterator[Receiver]:
    """A receiver that accepts everything."""

    async def take(_: web.Request) -> web.Response:
        return web.Response()

    with receiver_in_thread(take) as server:
        yield server
