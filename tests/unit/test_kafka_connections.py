"""What Kafka services grant their clients before and after the login: memory, time and places."""

import asyncio
import contextlib
import itertools
import logging
import socket
import ssl
import struct
import tracemalloc
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge

from backend.kafka.server.connections import Limits, Listener, ServerConnection
from backend.kafka.server.listen import HostPort, ListenTls
from backend.kafka.server.memory import RequestMemory
from backend.kafka.wire.framing import SMALL, FrameProtocol
from backend.kafka.wire.primitives import MalformedError
from tests.certificates import Authority
from tests.ports import free_ports
from tests.stream_client import StreamClient
from tests.waiting import LIMIT_SECONDS, wait_until_async

MIB = 1024 * 1024
LOGIN = b"login"
KEPT = b"kept"
"""A request that begins like this is answered only once ``Service.release`` is called."""


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


class Echo(ServerConnection):
    """Sends every request back. One that begins with ``LOGIN`` signs the client in."""

    def __init__(self, listener: Listener["Echo"]) -> None:
        super().__init__(listener)
        self.kept: list[bytearray] = []
        self.largest_pending = 0
        self._is_known = False

    def request_received(self, frame: bytearray) -> None:
        self.largest_pending = max(self.largest_pending, self.pending_bytes)
        if frame[4:].startswith(LOGIN):
            self._is_known = True
        if frame[4:].startswith(KEPT):
            self.kept.append(frame)
        else:
            self.answer(frame)

    def answer(self, frame: bytearray) -> None:
        self.transport.write(frame[:20])
        self.request_done(len(frame))

    @property
    def is_logged_in(self) -> bool:
        return self._is_known

    @property
    def is_idle(self) -> bool:
        return not self.kept

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self.close()

    def closed(self) -> None:
        pass


class Service:
    """An echo service on a free port."""

    def __init__(self, limits: Limits) -> None:
        registry = CollectorRegistry()
        self.refusals = Counter("refused", "x", ["reason"], registry=registry)
        self.listener: Listener[Echo] = Listener(
            Echo, limits=limits, count=Gauge("open", "x", registry=registry), refusals=self.refusals
        )
        self.address = HostPort(host="127.0.0.1", port=free_ports(1)[0])
        self.connected: list[Client] = []

    def refused(self, reason: str) -> float:
        return float(self.refusals.labels(reason)._value.get())

    async def connect(self, tls: ssl.SSLContext | None = None) -> "Client":
        client = Client(*await asyncio.open_connection(self.address.host, self.address.port, ssl=tls))
        self.connected.append(client)
        return client

    async def user(self, tls: ssl.SSLContext | None = None) -> "Client":
        """A client that has signed in."""
        client = await self.connect(tls)
        assert await client.ask(LOGIN) == frame(LOGIN)
        return client

    def release(self) -> None:
        for client in self.listener.clients:
            while client.kept:
                client.answer(client.kept.pop())


class Client(StreamClient):
    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def ask(self, body: bytes) -> bytes:
        """The first bytes of the answer."""
        self.send(frame(body))
        return await self.answer(min(len(body) + 4, 20))

    async def answer(self, size: int = 20) -> bytes:
        async with asyncio.timeout(LIMIT_SECONDS):
            return await self.reader.readexactly(size)


@contextlib.asynccontextmanager
async def serving(tls: ssl.SSLContext | None = None, **limits: Any) -> AsyncIterator[Service]:
    service = Service(Limits(**{"connections": 100, "frame_bytes": 8 * MIB, "memory_bytes": 32 * MIB} | limits))
    await service.listener.start(service.address, tls)
    try:
        yield service
    finally:
        await service.listener.drain(0)
        for client in service.connected:
            client.writer.transport.abort()
        await asyncio.sleep(0.05)  # aborted transports end on the loop


async def until(condition: Callable[[], object]) -> None:
    async def holds() -> object:
        return condition()

    await wait_until_async(holds)


Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs on the event loop of the standard library, and on that of the services."""

    def run(work: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(work)

    return run


# -- frames


class Frames(FrameProtocol):
    """``grows``: a large frame gets room for no more than twice what has come, as of clients."""

    def __init__(self, *, grows: bool) -> None:
        super().__init__(100 * MIB)
        self.received: list[bytes] = []
        self._grows = grows

    def room(self, held: int, size: int) -> int:
        return min(max(2 * held, SMALL), size) if self._grows else size

    def frame_received(self, frame: bytearray) -> None:
        self.received.append(bytes(frame))

    def malformed(self, error: MalformedError) -> None:
        raise error

    def feed(self, data: bytes, cuts: Iterator[int]) -> None:
        at = 0
        while at < len(data):
            buffer = self.get_buffer(-1)
            size = min(next(cuts), len(buffer), len(data) - at)
            buffer[:size] = data[at : at + size]
            self.buffer_updated(size)
            at += size


@settings(deadline=None)
@given(
    st.lists(st.sampled_from([1, 3, 100, 5000, SMALL - 1, SMALL, SMALL + 1, 200_000]), max_size=8),
    st.lists(st.integers(1, 70_000), min_size=1, max_size=5),
    st.booleans(),
    # Not st.randoms(), whose bytes count against the limit of what an example may consist of.
    st.integers(0, 2**32).map(Random),
)
def test_neighbours_10_frames_are_the_same_however_they_are_cut(
    sizes: list[int], cuts: list[int], grows: bool, random: Random
) -> None:
    if max(cuts) < 50 and sum(sizes) > 10_000:
        cuts = [*cuts, 5000]
    # Two connections, whose reads alternate, have nothing of each other.
    both = [([frame(random.randbytes(size)) for size in sizes], Frames(grows=grows)) for _ in range(2)]
    step = 1 + sum(sizes) // 7
    for at in range(0, sum(sizes) + 4 * len(sizes), step):
        for sent, frames in both:
            frames.feed(b"".join(sent)[at : at + step], itertools.cycle(cuts))
    for sent, frames in both:
        assert frames.received == sent
        assert frames.half_since is None
        assert frames.half_held == 0


async def test_neighbours_10_what_is_announced_is_never_allocated() -> None:
    async with serving(frame_bytes=100 * MIB, memory_bytes=200 * MIB) as service:
        users = [await service.user() for _ in range(50)]
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for user in users:
                user.send(struct.pack(">i", 90 * MIB) + b"x")
            await until(lambda: sum(client.half_held for client in service.listener.clients) == 50 * 5)
            assert tracemalloc.get_traced_memory()[1] - before < 50 * 3 * SMALL
        finally:
            tracemalloc.stop()
        assert service.listener.memory.used <= 50 * SMALL
        for user in users:
            user.writer.transport.abort()
        await until(lambda: not service.listener.clients)
        assert service.listener.memory.used == 0


# -- memory


class Upload:
    """A frame that is being read, as far as memory is concerned."""

    def __init__(self, memory: RequestMemory, size: int) -> None:
        self.memory, self.size = memory, size
        self.held = 0
        self.is_waiting = False

    @property
    def is_complete(self) -> bool:
        return self.held == self.size

    def read_on(self) -> None:
        more = min(max(self.held, 1), self.size - self.held)
        self.is_waiting = not self.memory.take(self, more)
        if not self.is_waiting:
            self.held += more
            if self.is_complete:
                self.memory.complete(self)


@given(st.lists(st.integers(1, 100), max_size=30), st.integers(1, 150), st.randoms())
def test_neighbours_10_memory_is_bounded_and_every_frame_becomes_complete(
    sizes: list[int], ordinary: int, random: Random
) -> None:
    memory = RequestMemory(100 + ordinary, 100)
    uploads = [Upload(memory, size) for size in sizes]
    answered: set[Upload] = set()
    while len(answered) < len(uploads):
        ready = [upload for upload in uploads if upload not in answered and not upload.is_waiting]
        assert ready, "All wait for each other."
        chosen = random.choice(ready)
        if not chosen.is_complete:
            chosen.read_on()
        elif random.random() < 0.5 or all(upload.is_complete for upload in ready):
            memory.give(chosen.size)
            answered.add(chosen)
        assert memory.used == sum(upload.held for upload in uploads if upload not in answered)
        assert memory.used <= 100 + ordinary
    assert memory.used == 0
    assert not memory.is_awaited


def test_neighbours_10_large_requests_wait_and_small_ones_do_not(run: Run) -> None:
    async def work() -> None:
        # Room for four frames of 8 MiB, of which one is the reserve.
        async with serving(frame_bytes=8 * MIB, memory_bytes=32 * MIB) as service:
            memory = service.listener.memory
            users = [await service.user() for _ in range(12)]
            for user in users:
                user.send(frame(KEPT + bytes(7 * MIB)))
            await until(lambda: memory.is_awaited)
            small = await service.user()
            for _ in range(20):
                assert (await small.ask(b"small"))[4:] == b"small"
            answered = 0
            while answered < len(users):
                assert memory.used <= 32 * MIB + 13 * 2 * SMALL
                await until(lambda: any(client.kept for client in service.listener.clients))
                answered += sum(len(client.kept) for client in service.listener.clients)
                service.release()
            for user in users:
                assert (await user.answer())[4:].startswith(KEPT)
            await until(lambda: memory.used == 0)
            assert not memory.is_awaited

    run(work())


def test_neighbours_10_while_memory_is_short_a_client_has_few_requests_pending(run: Run) -> None:
    async def work() -> None:
        async with serving(frame_bytes=MIB, memory_bytes=MIB + 200_000) as service:
            user = await service.user()
            for _ in range(100):
                user.send(frame(KEPT + bytes(50_000)))
            await until(lambda: service.listener.memory.is_short)
            other = await service.user()
            assert await other.ask(b"small")
            (client,) = (client for client in service.listener.clients if client.kept)
            assert client.largest_pending < 200_000 + 3 * SMALL
            for _ in range(100):
                await until(lambda: client.kept)
                client.answer(client.kept.pop())
            for _ in range(100):
                assert (await user.answer())[4:].startswith(KEPT)
            assert client.largest_pending < 200_000 + 3 * SMALL
            assert service.listener.memory.used == 0

    run(work())


# -- before the login


def test_neighbours_10_only_small_requests_are_taken_before_the_login(run: Run) -> None:
    async def work() -> None:
        async with serving() as service:
            stranger = await service.connect()
            assert await stranger.ask(bytes(SMALL))
            stranger.send(struct.pack(">i", SMALL + 1))
            assert await stranger.is_closed()
            assert service.refused("size") == 1
            user = await service.user()
            assert await user.ask(bytes(5 * MIB))
            user.send(struct.pack(">i", 9 * MIB))
            assert await user.is_closed()
            assert service.refused("malformed") == 1

    run(work())


def test_neighbours_10_a_login_has_a_deadline(run: Run) -> None:
    async def work() -> None:
        async with serving(login_seconds=3) as service:
            user, silent = await service.user(), await service.connect()
            assert await silent.is_closed()
            assert service.refused("login") == 1
            assert await user.ask(b"still here")

    run(work())


def test_neighbours_10_those_that_have_not_signed_in_make_room(run: Run) -> None:
    async def work() -> None:
        async with serving(connections=5) as service:
            users = [await service.user() for _ in range(3)]
            strangers = [await service.connect() for _ in range(2)]
            await until(lambda: len(service.listener.clients) == 5)
            users += [await service.user() for _ in range(2)]
            for stranger in strangers:
                assert await stranger.is_closed()
            for user in users:
                assert await user.ask(b"still here")
            late = await service.connect()
            assert await late.is_closed()
            assert service.refused("limit") == 3
            users.pop().writer.close()
            await until(lambda: len(service.listener.clients) == 4)
            assert await service.user()

    run(work())


def test_neighbours_10_an_address_has_its_own_limit(run: Run) -> None:
    async def work() -> None:
        async with serving(connections_per_address=2) as service:
            users = [await service.user() for _ in range(2)]
            assert await (await service.connect()).is_closed()
            users.pop().writer.close()
            await until(lambda: len(service.listener.clients) == 1)
            assert await service.user()

    run(work())


@pytest.mark.parametrize(
    ("data", "reason", "text"),
    [
        (
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40),
            "tls",
            "It speaks TLS, but this is a plain port.",
        ),
        (b"GET / HTTP/1.1\r\n\r\n", "http", "It speaks HTTP"),
        (b"POST / HTTP/1.1\r\n\r\n", "http", "It speaks HTTP"),
        (struct.pack(">i", -1), "malformed", "The frame has -1 bytes"),
    ],
)
def test_neighbours_10_other_protocols_are_named(
    run: Run, caplog: pytest.LogCaptureFixture, data: bytes, reason: str, text: str
) -> None:
    async def work() -> None:
        async with serving() as service:
            client = await service.connect()
            client.send(data)
            assert await client.is_closed()
            await until(lambda: not service.listener.clients)
            assert service.refused(reason) == 1

    run(work())
    assert text in caplog.text


# -- after it


def test_neighbours_10_half_a_request_has_a_deadline(run: Run) -> None:
    async def work() -> None:
        async with serving(frame_seconds=1) as service:
            half, user = await service.user(), await service.user()
            half.send(frame(bytes(1000))[:500])
            assert await half.is_closed()
            assert service.refused("slow") == 1
            assert await user.ask(b"still here")

    run(work())


def test_neighbours_10_a_slow_line_is_not_a_stalled_one(run: Run) -> None:
    async def work() -> None:
        async with serving(frame_seconds=1) as service:
            user = await service.user()
            data = frame(bytes(400_000))
            for at in range(0, len(data), 100_000):  # 100 KB in a second, for four of them
                user.send(data[at : at + 100_000])
                await asyncio.sleep(1)
            assert await user.answer()
            assert service.refused("slow") == 0

    run(work())


def test_neighbours_10_a_wait_for_memory_is_not_the_clients(run: Run) -> None:
    async def work() -> None:
        async with serving(frame_bytes=4 * MIB, memory_bytes=8 * MIB, frame_seconds=3) as service:
            users = [await service.user() for _ in range(4)]
            for user in users:
                user.send(frame(KEPT + bytes(3 * MIB)))
            await until(lambda: service.listener.memory.is_awaited)
            await asyncio.sleep(5)
            assert service.refused("slow") == 0
            answered = 0
            while answered < len(users):
                await until(lambda: any(client.kept for client in service.listener.clients))
                answered += sum(len(client.kept) for client in service.listener.clients)
                service.release()
            for user in users:
                assert await user.answer()

    run(work())


def test_neighbours_10_idle_connections_are_closed(run: Run) -> None:
    async def work() -> None:
        async with serving(idle_seconds=4) as service:
            idle, waiting, busy = [await service.user() for _ in range(3)]
            waiting.send(frame(KEPT + bytes(20)))

            async def keep_busy() -> None:
                while True:
                    assert await busy.ask(b"busy")
                    await asyncio.sleep(0.1)

            asking = asyncio.create_task(keep_busy())
            assert await idle.is_closed()
            assert service.refused("idle") == 1
            await asyncio.sleep(4)
            assert len(service.listener.clients) == 2
            service.release()
            assert await waiting.answer()
            assert not asking.done()
            asking.cancel()

    run(work())


# -- TLS


def contexts(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The service's and a client's."""
    authority = Authority(folder)
    certificate, key = authority.issue("service")
    own = ListenTls.model_validate({"certificate": str(certificate), "private_key": str(key)})
    return own.context, ssl.create_default_context(cafile=authority.certificate)


def test_neighbours_10_connections_that_never_begin_tls_are_closed(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own, known = contexts(tmp_path)

    async def work() -> None:
        async with serving(own, login_seconds=3, connections=20) as service:
            user = await service.user(known)
            assert await user.ask(bytes(3 * MIB))
            plain = await service.connect()
            plain.send(frame(LOGIN))
            async with asyncio.timeout(LIMIT_SECONDS):
                await plain.reader.read()
            await until(lambda: service.refused("tls") == 1)
            gone = [await service.connect() for _ in range(10)]
            for client in gone:
                client.writer.transport.abort()
            await until(lambda: len(service.listener.clients) == 1)
            silent = [await service.connect() for _ in range(40)]
            # They make room, and lock nobody out.
            assert await (await service.user(known)).ask(b"x")
            for client in silent:
                assert await client.is_closed()
            assert service.refused("login") + service.refused("limit") == 40
            assert await user.ask(b"still here")
            await until(lambda: len(service.listener.clients) == 2)

    run(work())
    assert "It does not speak TLS, which this port requires" in caplog.text


# -- the log


async def test_neighbours_10_many_refusals_are_few_lines(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backend.kafka.server.connections._PERIOD_SECONDS", 1.0)
    with caplog.at_level(logging.WARNING):
        async with serving() as service:
            for _ in range(200):
                (await service.connect()).send(b"GET / HTTP/1.1\r\n\r\n")
            await until(lambda: service.refused("http") == 200)
            await until(lambda: "more connections were closed for this reason: http." in caplog.text)
    assert len(caplog.records) < 100


def test_neighbours_10_a_drain_accepts_nothing_more(run: Run) -> None:
    async def work() -> None:
        service = Service(Limits(100, MIB, 4 * MIB))
        await service.listener.start(service.address, None)
        user = await service.user()
        user.send(frame(KEPT + bytes(20)))
        await until(lambda: any(client.kept for client in service.listener.clients))
        drain = asyncio.create_task(service.listener.drain(LIMIT_SECONDS))
        await asyncio.sleep(0)
        user.send(frame(b"too late"))
        service.release()
        assert (await user.answer())[4:].startswith(KEPT)
        await drain
        assert await user.is_closed()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((service.address.host, service.address.port), 1).close()

    run(work())
