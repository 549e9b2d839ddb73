"""Load on the HTTP input and a receiver behind it, in one process, so that one clock times both.

Both speak HTTP/1.1 straight on asyncio protocols: on a machine that also runs the whole platform
the measuring must cost little.
"""

import asyncio
import json
import time
from collections import deque
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httptools

_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass
class Times:
    """When each message was sent, accepted and delivered, by message id, on one monotonic clock."""

    sent: dict[str, float] = field(default_factory=dict)
    accepted: dict[str, float] = field(default_factory=dict)
    received: dict[str, float] = field(default_factory=dict)
    repeated: int = 0
    refused: int = 0

    def begin(self) -> "Times":
        """Forgets everything: a new run begins."""
        self.sent, self.accepted, self.received = {}, {}, {}
        self.repeated = self.refused = 0
        return self

    def latencies(self) -> list[float]:
        """Milliseconds from the 202 to the receiver, sorted; 0 where the delivery overtook the answer."""
        return sorted(
            max(0.0, at - self.accepted[found]) * 1000 for found, at in self.received.items() if found in self.accepted
        )


class _Delivery(asyncio.Protocol):
    def __init__(self, times: Times) -> None:
        self._times = times
        self._parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"headrace-message-id":
            found = value.decode()
            if found in self._times.received:
                self._times.repeated += 1
            else:
                self._times.received[found] = time.perf_counter()

    def on_message_complete(self) -> None:
        self._transport.write(_OK)


class _Post(asyncio.Protocol):
    """One connection; the next request goes when the answer to the one before is there."""

    def __init__(self, times: Times, free: deque["_Post"], is_closed_loop: bool, request: bytes) -> None:
        self._times = times
        self._free = free
        self._is_closed_loop = is_closed_loop
        self._request = request
        self._parser = httptools.HttpResponseParser(self)
        self._body = b""
        self.stopped = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._free.append(self)

    def post(self) -> None:
        self._sent = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        body, self._body = self._body, b""
        if self._parser.get_status_code() == 202:
            [found] = json.loads(body)["message_ids"]
            self._times.sent[found] = self._sent
            self._times.accepted[found] = time.perf_counter()
        else:
            self._times.refused += 1
        self._parser = httptools.HttpResponseParser(self)
        if self._is_closed_loop and not self.stopped:
            self.post()
        else:
            self._free.append(self)


async def receive(times: Times) -> tuple[asyncio.Server, str]:
    """A receiver on a free port, and its URL."""
    server = await asyncio.get_running_loop().create_server(lambda: _Delivery(times), "127.0.0.1", 0)
    return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


async def load(
    times: Times, *, url: str, key: str, body: bytes, seconds: float, rate: int | None, connections: int = 64
) -> None:
    """Posts at a rate, or with every connection busy when the rate is None."""
    address = urlsplit(url)
    head = (
        f"POST {address.path} HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    free: deque[_Post] = deque()
    loop = asyncio.get_running_loop()
    posts = [
        (
            await loop.create_connection(
                lambda: _Post(times, free, rate is None, head.encode() + body), address.hostname, address.port
            )
        )[1]
        for _ in range(connections)
    ]
    started = time.perf_counter()
    sent = 0
    if rate is None:
        while free:
            free.popleft().post()
        await asyncio.sleep(seconds)
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
