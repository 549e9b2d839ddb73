"""The receivers of all tenants: one HTTP server that answers as each path says and remembers what it has accepted."""

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from aiohttp import web

from tests.receiver import receiver_in_thread

HEADER = "Headrace-Message-Id"
BATCH = "application/x-ndjson"


@dataclass
class Inbox:
    """What one output has accepted, in the order of the first receipt."""

    ids: dict[str, float] = field(default_factory=dict)
    """When each message was first accepted, by its id, or by its document's own; seconds of the monotonic clock."""
    repeated: int = 0
    """Messages that arrived again."""
    order: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    """The numbers and ids of the messages with each key."""

    def accept(self, message_id: str, body: dict[str, object]) -> None:
        id = str(body.get("id", message_id))
        if id in self.ids:
            self.repeated += 1
        else:
            self.ids[id] = time.monotonic()
            self.order.setdefault(str(body["key"]), []).append((int(str(body["n"])), id))


@dataclass
class Receivers:
    """``POST /{behaviour}/{tenant}/{output}`` accepts deliveries, ``GET /api/…`` answers a step's call.

    Once ``healed`` is set, every behaviour accepts everything.
    """

    random: random.Random
    url: str = ""
    healed: bool = False
    inboxes: dict[str, Inbox] = field(default_factory=dict)

    def inbox(self, tenant: str, output: str) -> Inbox:
        return self.inboxes.setdefault(f"{tenant}/{output}", Inbox())

    async def answer(self, request: web.Request) -> web.Response:
        behaviour, *place = request.path.strip("/").split("/")
        if behaviour == "api":
            await asyncio.sleep(0.02)
            return web.json_response({"name": "called"})
        status = 200 if self.healed else await _BEHAVIOURS[behaviour](self.random)
        if status == 200:
            self._accept(self.inbox(*place), request, await request.text())
        return web.Response(status=status)

    @staticmethod
    def _accept(inbox: Inbox, request: web.Request, body: str) -> None:
        if request.content_type == BATCH:
            for line in body.splitlines():
                envelope = json.loads(line)
                inbox.accept(envelope["message_id"], envelope["body"])
        else:
            inbox.accept(request.headers[HEADER], json.loads(body))


async def _good(_: random.Random) -> int:
    return 200


async def _failing(numbers: random.Random) -> int:
    return 503 if numbers.random() < 0.1 else 200


async def _slow(_: random.Random) -> int:
    await asyncio.sleep(0.05)
    return 200


async def _pausing(numbers: random.Random) -> int:
    """One request of a hundred hangs for longer than an attempt may take."""
    if numbers.random() < 0.01:
        await asyncio.sleep(5)
    return 200


async def _hanging(_: random.Random) -> int:
    await asyncio.sleep(60)
    return 503


async def _refusing(_: random.Random) -> int:
    return 400


_BEHAVIOURS: dict[str, Callable[[random.Random], Awaitable[int]]] = {
    "good": _good,
    "failing": _failing,
    "slow": _slow,
    "pausing": _pausing,
    "hanging": _hanging,
    "refusing": _refusing,
}


@contextmanager
def receivers(seed: int) -> Iterator[Receivers]:
    running = Receivers(random.Random(seed))
    with receiver_in_thread(running.answer) as server:
        running.url = server.url.rstrip("/")
        yield running
