"""One client's connection to one broker. Clients share none, so that the broker knows whom a request comes from."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

from backend.kafka.proxy.activity import Tally
from backend.kafka.proxy.config import BrokerTls, ProxyConfig
from backend.kafka.proxy.sasl import Login, RefusedError
from backend.kafka.server.listen import HostPort
from backend.kafka.wire import codec
from backend.kafka.wire.api import ApiKey
from backend.kafka.wire.framing import FrameProtocol
from backend.kafka.wire.primitives import MalformedError, Parts
from backend.kafka.wire.structs import Struct

log = logging.getLogger(__name__)

CLIENT_ID = "headrace-proxy"

_FIRST_PAUSE = 0.1
"""Seconds before the second attempt to sign in; each further pause is twice as long."""
_LOGIN_INTERVAL = 1.1
"""Seconds between two sign-ins of a connection: brokers reject one that comes within a second of the last."""


class Lost(Enum):
    """Takes the place of an answer. A request that was not sent has certainly had no effect."""

    UNSENT = 0
    SENT = 1


OnAnswer = Callable[[bytearray | Lost], None]


@dataclass(slots=True)
class _Waiting:
    correlation_id: int
    on_answer: OnAnswer
    deadline: float


class BrokerConnection(FrameProtocol):
    """Connects as soon as it is created; requests wait until it is open.

    ``on_closed`` is called once, and its second argument tells whether the connection failed: requests were pending,
    and the proxy had not closed it. ``on_writable`` is called with whether the broker keeps up with writes.
    """

    def __init__(
        self,
        address: HostPort,
        config: ProxyConfig,
        *,
        tally: Tally,
        tls: BrokerTls | None,
        login: Login | None,
        on_closed: Callable[["BrokerConnection", bool], None],
        on_writable: Callable[[bool], None],
    ) -> None:
        super().__init__(config.max_frame_bytes)
        self.address = address
        self._config = config
        self._tally = tally
        self._tls = tls
        self._login = login
        self._on_closed = on_closed
        self._on_writable = on_writable
        self._is_reading_paused = False
        self._is_connected = False
        self._was_open = False
        self._is_open = False
        self._is_closed = False
        self._unsent: list[tuple[Parts, _Waiting | None]] = []
        self._waiting: deque[_Waiting] = deque()
        self._correlation_id = 0
        self._last_is_unanswered = False
        self._disconnected = asyncio.Event()
        self._login_timer: asyncio.TimerHandle | None = None
        self._logged_in = 0.0
        self._opening = asyncio.create_task(self._open())

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    # -- sending

    def send(self, parts: Parts, on_answer: OnAnswer | None, *, patience: float = 0.0) -> None:
        """Sends a whole frame, whose correlation id is replaced. Without ``on_answer`` no answer is expected.

        ``patience`` extends the request timeout by that many seconds.
        """
        waiting = self._number(parts, on_answer, patience)
        self._tally.requests += 1
        if self._is_open:
            self._write(parts, waiting)
        else:
            self._unsent.append((parts, waiting))

    def _number(self, parts: Parts, on_answer: OnAnswer | None, patience: float) -> _Waiting | None:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        codec.put_request_correlation(parts, self._correlation_id)
        if on_answer is None:
            return None
        deadline = time.monotonic() + patience + self._config.request_timeout_ms / 1000
        return _Waiting(self._correlation_id, on_answer, deadline)

    def _write(self, parts: Parts, waiting: _Waiting | None) -> None:
        self._tally.bytes_to += sum(map(len, parts))
        if waiting is not None:
            self._waiting.append(waiting)
        self._last_is_unanswered = waiting is None
        self.transport.writelines(parts)

    async def request(self, api_key: ApiKey, version: int, body: Struct) -> Struct:
        """Sends a request of the proxy's own and awaits the answer. Raises ConnectionError."""
        return await self._request(api_key, version, body, self.send)

    async def _request_now(self, api_key: ApiKey, version: int, body: Struct) -> Struct:
        """Sends the request ahead of those that wait for the connection to open."""

        def send(parts: Parts, on_answer: OnAnswer) -> None:
            self._write(parts, self._number(parts, on_answer, 0.0))

        return await self._request(api_key, version, body, send)

    async def _request(
        self, api_key: ApiKey, version: int, body: Struct, send: Callable[[Parts, OnAnswer], None]
    ) -> Struct:
        answered: asyncio.Future[bytearray | Lost] = asyncio.get_running_loop().create_future()

        def on_answer(answer: bytearray | Lost) -> None:
            if not answered.done():
                answered.set_result(answer)

        send(codec.write_request(api_key, version, 0, CLIENT_ID, body), on_answer)
        frame = await answered
        if isinstance(frame, Lost):
            raise ConnectionError("the broker closed the connection")
        try:
            return codec.read_response(api_key, version, frame)
        except MalformedError as error:
            raise ConnectionError(f"the broker's answer cannot be read: {error}") from None

    # -- ending

    def close(self) -> None:
        """Closes the connection after what has been written is sent."""
        self._opening.cancel()
        if self._is_connected:
            self.transport.close()
        self._end(is_intended=True)

    def _abort(self) -> None:
        self._opening.cancel()
        if self._is_connected:
            self.transport.abort()
        self._end()

    def check(self, now: float) -> None:
        """Aborts the connection when a request has timed out."""
        if self._waiting and self._waiting[0].deadline < now:
            log.warning("The broker at %s has not answered in time; its connection is closed.", self.address)
            self._abort()

    def _end(self, *, is_intended: bool = False) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._cancel_login()
        # A broker rejects a write with acks=0 by closing the connection.
        has_failed = not is_intended and (bool(self._waiting or self._unsent) or self._last_is_unanswered)
        if has_failed:
            self._tally.failures += 1
        if self._was_open:
            self._tally.connections -= 1
        self._opening.cancel()
        self._on_closed(self, has_failed)
        waiting, self._waiting = self._waiting, deque()
        for sent in waiting:
            sent.on_answer(Lost.SENT)
        unsent, self._unsent = self._unsent, []
        for _, queued in unsent:
            if queued is not None:
                queued.on_answer(Lost.UNSENT)

    # -- opening

    async def _open(self) -> None:
        tries = self._login.tries if self._login is not None else 1
        for number in range(1, tries + 1):
            try:
                async with asyncio.timeout(self._config.connect_timeout_ms / 1000):
                    await self._connect()
                async with asyncio.timeout(self._config.request_timeout_ms / 1000):
                    await self._log_in()
                self._flush()
                return
            except RefusedError as error:
                reason: Exception = error
                if number < tries:
                    await asyncio.sleep(_FIRST_PAUSE * 2 ** (number - 1))
            except (OSError, TimeoutError) as error:
                reason = error
                break
        log.warning("The broker at %s cannot be used: %s.", self.address, str(reason) or "no answer in time")
        self._abort()

    async def _connect(self) -> None:
        """Reconnects if signing in has failed, since the broker closes the connection then."""
        if self._is_connected:
            self.transport.abort()
            await self._disconnected.wait()
        loop = asyncio.get_running_loop()
        context = self._tls.context if self._tls is not None else None
        await loop.create_connection(lambda: self, self.address.host, self.address.port, ssl=context)

    async def _log_in(self) -> None:
        self._cancel_login()
        if self._login is None:
            return
        seconds = await self._login.run(self._request_now)
        self._logged_in = time.monotonic()
        if seconds:
            self._login_timer = asyncio.get_running_loop().call_later(seconds / 2, self._log_in_again)

    def _cancel_login(self) -> None:
        if self._login_timer is not None:
            self._login_timer.cancel()

    def log_in_again(self, login: Login) -> None:
        """Signs in again with the credentials that the client has just sent (re-authentication, KIP-368)."""
        self._login = login
        self._log_in_again()

    def _log_in_again(self) -> None:
        """Requests wait until this is done, since the broker would reject them."""
        if self._is_open:
            self._is_open = False
            self._opening = asyncio.create_task(self._renew())

    async def _renew(self) -> None:
        try:
            await asyncio.sleep(self._logged_in + _LOGIN_INTERVAL - time.monotonic())
            async with asyncio.timeout(self._config.request_timeout_ms / 1000):
                await self._log_in()
            self._flush()
        except (OSError, TimeoutError) as error:
            log.warning(
                "Re-authentication at the broker at %s failed: %s.", self.address, str(error) or "no answer in time"
            )
            self._abort()

    def _flush(self) -> None:
        if not self._was_open:
            self._tally.connections += 1
        self._is_open = self._was_open = True
        unsent, self._unsent = self._unsent, []
        for parts, waiting in unsent:
            self._write(parts, waiting)

    # -- the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._is_connected = True
        self._disconnected.clear()

    def frame_received(self, frame: bytearray) -> None:
        self._tally.bytes_from += len(frame)
        if not self._waiting or self._waiting[0].correlation_id != codec.response_correlation(frame):
            raise MalformedError("The answer matches no pending request.")
        self._waiting.popleft().on_answer(frame)

    def malformed(self, error: MalformedError) -> None:
        log.error("The broker at %s sent malformed data: %s", self.address, error)

    def connection_lost(self, error: Exception | None) -> None:
        self._is_connected = False
        self._disconnected.set()
        if self._was_open or self._opening.done():
            self._end()
            return
        # Still opening: the sign-in is notified and may be retried.
        waiting, self._waiting = self._waiting, deque()
        for pending in waiting:
            pending.on_answer(Lost.SENT)

    def pause(self, paused: bool) -> None:
        """Back-pressure: the proxy does not read from the broker while the client does not read from the proxy."""
        if self._is_open and paused != self._is_reading_paused:
            self._is_reading_paused = paused
            (self.transport.pause_reading if paused else self.transport.resume_reading)()

    def pause_writing(self) -> None:
        self._on_writable(False)

    def resume_writing(self) -> None:
        with suppress(RuntimeError):  # the client may be gone
            self._on_writable(True)
