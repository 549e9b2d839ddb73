"""Load on the HTTP input and a receiver of its deliveries, in one process, so that one clock measures both.

Both implement HTTP/1.1 directly on asyncio protocols, since measuring must cost little on a machine that also runs the
whole platform.
"""

import asyncio
import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httptools

_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


NUMBER = re.compile(rb'"number": ?"(\d{12})"')


def numbered(number: int) -> bytes:
    """The JSON member that identifies a message; every body must contain one."""
    return b'"number": "%012d"' % number


@dataclass
class Times:
    """When each message was sent, accepted and delivered, by its number, in seconds of one monotonic clock."""

    sent: dict[int, float] = field(default_factory=dict)
    accepted: dict[int, float] = field(default_factory=dict)
    received: dict[int, float] = field(default_factory=dict)
    repeated: int = 0
    refused: int = 0
    _next: int = 0

    def begin(self) -> "Times":
        """Starts a new run, whose numbers have not been used before."""
        self.sent, self.accepted, self.received = {}, {}, {}
        self.repeated = self.refused = 0
        return self

    def number(self) -> int:
        self._next += 1
        return self._next

    async def all_received(self, seconds: float) -> bool:
        """Waits so long for what was accepted; whether all of it has arrived."""
        deadline = time.monotonic() + seconds
        while len(self.received) < len(self.accepted):
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.05)
        return True

    def latencies(self, since: dict[int, float]) -> list[float]:
        """Milliseconds from ``since`` to the receiver, sorted; 0 if the delivery overtook the answer."""
        return sorted(max(0.0, at - since[number]) * 1000 for number, at in self.received.items() if number in since)


class _Delivery(asyncio.Protocol):
    def __init__(self, times: Times) -> None:
        self._times = times
        self._parser = httptools.HttpRequestParser(self)
        self._body = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        match = NUMBER.search(self._body)
        self._body = b""
        self._transport.write(_OK)
        if match is None:
            return
        number = int(match[1])
        if number in self._times.received:
            self._times.repeated += 1
        else:
            self._times.received[number] = time.perf_counter()


class _Post(asyncio.Protocol):
    """One connection, which sends the next request when the previous one is answered."""

    def __init__(
        self, times: Times, free: deque["_Post"], is_closed_loop: bool, request: Callable[[int], bytes]
    ) -> None:
        self._times = times
        self._free = free
        self._is_closed_loop = is_closed_loop
        self._request = request
        self._parser = httptools.HttpResponseParser(self)
        self.stopped = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._free.append(self)

    def post(self) -> None:
        self._number = self._times.number()
        self._times.sent[self._number] = time.perf_counter()
        self._transport.write(self._request(self._number))

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() in (200, 202):
            self._times.accepted[self._number] = time.perf_counter()
        else:
            self._times.refused += 1
        self._parser = httptools.HttpResponseParser(self)
        if self._is_closed_loop and not self.stopped:
            self.post()
        else:
            self._free.append(self)


async def receive(times: Times) -> tuple[asyncio.Server, str]:
    """Starts a receiver on a free port and returns it with its URL."""
    server = await asyncio.get_running_loop().create_server(lambda: _Delivery(times), "127.0.0.1", 0)
    return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


async def load(
    times: Times,
    *,
    url: str,
    key: str,
    body: bytes,
    seconds: float,
    rate: float | None,
    connections: int = 64,
    messages: int | None = None,
) -> None:
    """Posts at a rate (messages per second), or as fast as possible if it is None; at most ``messages``.

    ``body`` has ``%s`` in place of the message's number.
    """
    address = urlsplit(url)
    head = (
        f"POST {address.path} HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body % numbered(0))}\r\n\r\n"
    ).encode()
    free: deque[_Post] = deque()

    def request(number: int) -> bytes:
        return head + body % numbered(number)

    def connection() -> _Post:
        return _Post(times, free, rate is None, request)

    loop = asyncio.get_running_loop()
    posts = [(await loop.create_connection(connection, address.hostname, address.port))[1] for _ in range(connections)]
    started = time.perf_counter()
    sent = 0
    if rate is None:
        while free:
            free.popleft().post()
        while time.perf_counter() - started < seconds and (messages is None or len(times.sent) < messages):
            await asyncio.sleep(0.01)
        for post in posts:
            post.stopped = True
    while rate is not None and (elapsed := time.perf_counter() - started) < seconds:
        while sent < rate * elapsed and free:
            free.popleft().post()
            sent += 1
        await asyncio.sleep(0.001)
    while len(free) < connections:
        await asyncio.sleep(0.01)
    for post in posts:
        post._transport.close()
