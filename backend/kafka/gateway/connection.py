"""One client's connection. Requests are answered one after the other, as Kafka does."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from backend.kafka.gateway import metrics
from backend.kafka.gateway.authentication import Authentication
from backend.kafka.gateway.errors import KafkaError
from backend.kafka.gateway.fetch_session import FetchSession
from backend.kafka.gateway.ports import Account
from backend.kafka.server.connections import Listener, ServerConnection
from backend.kafka.server.versions import too_new
from backend.kafka.wire import codec
from backend.kafka.wire.api import ApiKey
from backend.kafka.wire.codec import RequestHeader
from backend.kafka.wire.messages import REQUESTS
from backend.kafka.wire.primitives import MalformedError, Parts
from backend.kafka.wire.structs import Struct

if TYPE_CHECKING:
    from backend.kafka.gateway.context import Context

log = logging.getLogger(__name__)

MAX_FRAME = 8 * 1024 * 1024
"""Requests are small; only the assignments and offsets of large groups come near."""
_MAX_WAITING = 32
_OPEN = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
"""What a client may ask for before it is authenticated."""


@dataclass
class Client:
    """What the answers to one client depend on."""

    account: Account
    host: str
    client_id: str = ""
    software: str = ""
    session: FetchSession = field(default_factory=FetchSession)
    throttled_until: float = 0.0


@dataclass(frozen=True)
class Call:
    """One request and who sent it."""

    context: "Context"
    client: Client
    version: int


Handler = Callable[[Call, Struct], Awaitable[Struct]]
"""Answers a request. Raises MalformedError when it breaks the protocol, so that the connection has to be closed."""


class GatewayConnection(ServerConnection):
    """Signs one client in and answers its requests."""

    def __init__(self, context: "Context", listener: "Listener[GatewayConnection]") -> None:
        super().__init__(listener)
        self._context = context
        self._authentication = Authentication(context.accounts)
        self._software = ""
        self._waiting: deque[bytearray] = deque()
        self._work: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self.client: Client | None = None

    def request_received(self, frame: bytearray) -> None:
        self._waiting.append(frame)
        if len(self._waiting) > _MAX_WAITING:
            self.hold("waiting", True)
        if self._work is None:
            self._work = asyncio.create_task(self._answer_all())

    async def _answer_all(self) -> None:
        try:
            while self._waiting and not self.is_closed:
                frame = self._waiting.popleft()
                if len(self._waiting) <= _MAX_WAITING:
                    self.hold("waiting", False)
                await self._answer(frame)
                self.request_done(len(frame))
                await self._writable.wait()
        except MalformedError as error:
            self.malformed(error)
            self.close()
        except KafkaError as error:
            self.refuse("protocol", str(error))
        except Exception:
            log.exception("A request of client %s could not be answered. The connection is closed.", self.peer)
            self.close()
        finally:
            self._work = None

    async def _answer(self, frame: bytearray) -> None:
        header = codec.read_request_header(frame)
        began = time.monotonic()
        if header.api_key == ApiKey.API_VERSIONS and (answer := too_new(header)) is not None:
            self._send(answer)
            return
        handler = self._context.apis.get(header.api_key)
        if handler is None or header.version not in REQUESTS[header.api_key].versions:
            self.refuse("unsupported", f"It sent version {header.version} of API {header.api_key}, which is unknown.")
            return
        metrics.requests(header.api_key).inc()
        body = codec.read_request(header.api_key, header.version, frame, header.body)
        if header.api_key in _OPEN:
            await self._open(header, body)
        else:
            await self._authenticated(header, body, handler)
        metrics.latency(header.api_key).observe(time.monotonic() - began)

    async def _open(self, header: RequestHeader, body: Struct) -> None:
        stays_open = True
        if header.api_key == ApiKey.API_VERSIONS:
            self._software = body.client_software_name
            answer = self._context.api_versions()
        elif header.api_key == ApiKey.SASL_HANDSHAKE:
            if header.version == 0:
                raise MalformedError("SaslHandshake version 0 is not supported.")
            answer = self._authentication.handshake(body)
        else:
            answer, stays_open = await self._authentication.authenticate(body)
            self._signed_in(header)
        self._send(codec.write_response(header.api_key, header.version, header.correlation_id, answer))
        if not stays_open:
            self._listener.refused("authentication", f"Client {self.peer} could not be authenticated.")
            self.transport.close()

    def _signed_in(self, header: RequestHeader) -> None:
        account = self._authentication.account
        if account is None:
            return
        if self.client is None:
            self.client = Client(account, self.peer.rpartition(":")[0], header.client_id or "", self._software)
        self.client.account = account

    async def _authenticated(self, header: RequestHeader, body: Struct, handler: Handler) -> None:
        if self.client is None:
            self.refuse("authentication", "It has to authenticate first, with SASL.")
            return
        self.client.client_id = header.client_id or ""
        answer = await handler(Call(self._context, self.client, header.version), body)
        self._send(codec.write_response(header.api_key, header.version, header.correlation_id, answer))
        # A client that ignores its throttle time is made to wait: nothing more is read from its queue.
        delay = self.client.throttled_until - time.monotonic()
        if delay > 0:
            metrics.THROTTLED_SECONDS.inc(delay)
            await asyncio.sleep(delay)

    def _send(self, parts: Parts) -> None:
        if not self.is_closed:
            self.transport.writelines(parts)

    @property
    def is_idle(self) -> bool:
        return self._work is None

    @property
    def is_logged_in(self) -> bool:
        return self.client is not None

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self.close()

    def closed(self) -> None:
        if self._work is not None and self._work is not asyncio.current_task():
            self._work.cancel()
