"""One client's connection to one broker. No two clients share one, so that a broker sees who asks."""

import asyncio
import functools
import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

from backend.kafka_proxy import metrics, sasl
from backend.kafka_proxy.config import Address, ProxyConfig
from backend.kafka_proxy.sasl import Credentials
from backend.kafka_wire.api import ApiKey
from backend.kafka_wire.codec import Parts, put_request_correlation, response_correlation
from backend.kafka_wire.framing import FrameProtocol

log = logging.getLogger(__name__)


class Lost(Enum):
    """In place of an answer. What was not sent was certainly not done."""

    UNSENT = 0
    SENT = 1


OnAnswer = Callable[[bytearray | Lost], None]


@dataclass(slots=True)
class _Waiting:
    correlation_id: int
    on_answer: OnAnswer
    deadline: float


class BrokerConnection(FrameProtocol):
    """Opened when the first request is sent; requests wait meanwhile. ``on_closed`` is called once, when it is over,
    and told whether requests were open then. ``on_writable`` says whether the broker keeps up."""

    def __init__(
        self,
        address: Address,
        config: ProxyConfig,
        *,
        name: str,
        credentials: Credentials | None,
        on_closed: Callable[["BrokerConnection", bool], None],
        on_writable: Callable[[bool], None],
    ) -> None:
        super().__init__(config.max_frame_bytes)
        self.address = address
        self.is_reading_paused = False
        self._config = config
        self._credentials = credentials
        self._on_closed = on_closed
        self._on_writable = on_writable
        self._is_connected = False
        self._is_open = False
        self._is_closed = False
        self._unsent: list[tuple[Parts, _Waiting | None]] = []
        self._waiting: deque[_Waiting] = deque()
        self._correlation_id = 0
        self._unanswered = False
        self._requests = metrics.BROKER_REQUESTS.labels(name)
        self._bytes_in = metrics.BROKER_BYTES.labels(name, "from")
        self._bytes_out = metrics.BROKER_BYTES.labels(name, "to")
        self._failures = metrics.BROKER_FAILURES.labels(name)
        self._connecting = asyncio.create_task(self._connect())

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    # -- sending

    def send(self, parts: Parts, on_answer: OnAnswer | None, *, patience: float = 0.0) -> None:
        """A whole frame, whose correlation id is replaced. Without ``on_answer`` none is expected. ``patience`` is
        for how many seconds beyond the usual the broker may take."""
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        put_request_correlation(parts, self._correlation_id)
        waiting = None
        if on_answer is not None:
            deadline = time.monotonic() + patience + self._config.request_timeout_ms / 1000
            waiting = _Waiting(self._correlation_id, on_answer, deadline)
        self._requests.inc()
        if self._is_open:
            self._write(parts, waiting)
        else:
            self._unsent.append((parts, waiting))

    def _write(self, parts: Parts, waiting: _Waiting | None) -> None:
        self._bytes_out.inc(sum(map(len, parts)))
        if waiting is not None:
            self._waiting.append(waiting)
        self._unanswered = waiting is None
        self.transport.writelines(parts)

    def close(self) -> None:
        self._connecting.cancel()
        if self._is_connected:
            self.transport.abort()
        self._end()

    def check(self, now: float) -> None:
        """Ends the connection when the broker has not answered for too long."""
        if self._waiting and self._waiting[0].deadline < now:
            log.warning("Broker at %s has not answered in time; the connection is closed.", self.address)
            self.close()

    def reauthenticate(self, credentials: Credentials) -> None:
        """With what the client has just shown anew: KIP-368."""
        self._credentials = credentials
        if self._is_open:
            for step, parts in credentials.steps():
                self.send(parts, functools.partial(self._check_again, step))

    def _check_again(self, step: ApiKey, answer: bytearray | Lost) -> None:
        if isinstance(answer, bytearray):
            try:
                sasl.check(step, answer)
            except ConnectionError as error:
                log.warning("Broker at %s: %s", self.address, error)
                self.close()

    def pause(self, paused: bool) -> None:
        """Back-pressure: while the client does not read, nothing is read from the broker."""
        if self._is_open and paused != self.is_reading_paused:
            self.is_reading_paused = paused
            (self.transport.pause_reading if paused else self.transport.resume_reading)()

    # -- the connection

    async def _connect(self) -> None:
        tls = self._config.tls.brokers
        try:
            async with asyncio.timeout(self._config.connect_timeout_ms / 1000):
                await asyncio.get_running_loop().create_connection(
                    lambda: self,
                    self.address.host,
                    self.address.port,
                    ssl=tls.context if tls is not None else None,
                )
                if self._credentials is not None:
                    await self._authenticate(self._credentials)
        except (OSError, TimeoutError) as error:
            log.warning("Broker at %s cannot be reached: %s", self.address, error or "no answer in time")
            self.close()
            return
        self._is_open = True
        unsent, self._unsent = self._unsent, []
        for parts, waiting in unsent:
            self._write(parts, waiting)

    async def _authenticate(self, credentials: Credentials) -> None:
        for step, parts in credentials.steps():
            answered: asyncio.Future[bytearray] = asyncio.get_running_loop().create_future()

            def take(answer: bytearray | Lost, answered: asyncio.Future[bytearray] = answered) -> None:
                if answered.done():
                    return
                if isinstance(answer, Lost):
                    answered.set_exception(ConnectionError("it closed while the client was being authenticated"))
                else:
                    answered.set_result(answer)

            self._correlation_id += 1
            put_request_correlation(parts, self._correlation_id)
            self._write(parts, _Waiting(self._correlation_id, take, float("inf")))
            sasl.check(step, await answered)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._is_connected = True

    def frame_received(self, frame: bytearray) -> None:
        self._bytes_in.inc(len(frame))
        if not self._waiting or self._waiting[0].correlation_id != response_correlation(frame):
            self.malformed("an answer to nothing that was asked")
            self.transport.abort()
            return
        self._waiting.popleft().on_answer(frame)

    def malformed(self, reason: str) -> None:
        log.error("Broker at %s: %s", self.address, reason)

    def connection_lost(self, error: Exception | None) -> None:
        self._end()

    def _end(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        was_busy = bool(self._waiting or self._unsent) or self._unanswered
        if was_busy:
            self._failures.inc()
        self._connecting.cancel()
        self._on_closed(self, was_busy)
        waiting, self._waiting = self._waiting, deque()
        for sent in waiting:
            sent.on_answer(Lost.SENT)
        unsent, self._unsent = self._unsent, []
        for _, queued in unsent:
            if queued is not None:
                queued.on_answer(Lost.UNSENT)

    def pause_writing(self) -> None:
        self._on_writable(False)

    def resume_writing(self) -> None:
        with suppress(RuntimeError):  # the client may be gone
            self._on_writable(True)
