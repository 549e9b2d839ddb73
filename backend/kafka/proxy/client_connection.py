"""One client's connection: requests are sent to brokers, and answers are returned in the order of the requests."""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from backend.kafka.proxy import handshake, metrics
from backend.kafka.proxy.activity import Tally
from backend.kafka.proxy.broker_connection import CLIENT_ID, BrokerConnection, Lost
from backend.kafka.proxy.broker_pool import BrokerPool
from backend.kafka.proxy.context import Context
from backend.kafka.proxy.discovery import discover
from backend.kafka.proxy.fetch import Fetcher
from backend.kafka.proxy.rejected_writes import RejectedWrites
from backend.kafka.proxy.routes import ROUTES
from backend.kafka.proxy.routing import Leg, Lookup, Route
from backend.kafka.proxy.share import ShareGroups
from backend.kafka.proxy.topology import Broker
from backend.kafka.server.connections import Listener, ServerConnection
from backend.kafka.wire import codec
from backend.kafka.wire.api import ApiKey
from backend.kafka.wire.codec import RequestHeader
from backend.kafka.wire.primitives import MalformedError, Parts
from backend.kafka.wire.structs import Struct

log = logging.getLogger(__name__)

_MAX_PENDING = 64
_MAX_PENDING_BYTES = 16 * 1024 * 1024
"""How many requests of one client may be pending, and their size, before the proxy stops reading from it."""
_SYNC_PATIENCE = 300.0
"""Seconds. A member waits in SyncGroup until its group's leader has computed the assignment."""
_TRIES = 3
"""Attempts, each at another broker, for requests that any broker can answer."""
_LINGER_SECONDS = 5.0
_RESOLVE_SECONDS = 10.0

_SessionHandler = Callable[[Struct, int, Callable[[Struct], None]], None]

_UNREAD = Struct()
"""Takes the place of the body of a request whose route does not read it."""


@dataclass(slots=True)
class _Slot:
    """A request's place in the order of the answers."""

    header: RequestHeader
    received: float
    size: int
    parts: Parts | None = None
    is_answered: bool = False


@dataclass(slots=True)
class _Exchange:
    """A request that one or several brokers are handling."""

    slot: _Slot
    frame: bytearray
    route: Route
    body: Struct
    legs: list[Leg] = field(default_factory=list)
    pending_legs: int = 0


class ClientConnection(ServerConnection):
    """Handles one client until either side closes the connection."""

    def __init__(self, context: Context, listener: "Listener[ClientConnection]") -> None:
        super().__init__(listener)
        self._config = context.config
        self._topology = context.topology
        self._nodes = context.nodes
        self._activity = context.activity
        self._tally: Tally | None = None
        self._brokers = BrokerPool(context, on_writable=self._on_broker_writable, on_home_closed=self._home_closed)
        self._slots: deque[_Slot] = deque()
        self._postponed: deque[tuple[_Slot, bytearray]] = deque()
        self._is_resolving = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._are_brokers_slow = False
        self._has_answer = self._was_served = False
        self._gone_since: float | None = None
        self._rejected = RejectedWrites()
        self._handshake = handshake.Handshake(context.tokens)
        self._fetcher = Fetcher(self)
        self._share_groups = ShareGroups(self)
        self._session_handlers: dict[int, _SessionHandler] = {
            ApiKey.FETCH: self._fetcher.fetch,
            ApiKey.SHARE_FETCH: self._share_groups.fetch,
            ApiKey.SHARE_ACKNOWLEDGE: self._share_groups.acknowledge,
        }

    # -- the client

    def request_received(self, frame: bytearray) -> None:
        header = codec.read_request_header(frame)
        now = time.monotonic()
        if now > self._handshake.expires and header.api_key not in handshake.SIGN_IN:
            self._refuse_expired()
            return
        tally = self._tally
        if tally is None:
            tally = self._tally = self._activity.clients.of(header.client_id or "")
            tally.connections += 1
        tally.requests += 1
        tally.bytes_from += len(frame)
        slot = _Slot(header, now, len(frame))
        self._slots.append(slot)
        if self._is_full:
            self.hold("pending", True)
        if self._is_resolving:
            self._postponed.append((slot, frame))
        else:
            self._handle(slot, frame)

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._gone_since = time.monotonic()
        self._leave(self._gone_since)

    def _leave(self, now: float) -> None:
        """Closes the connection of a client that has gone, once its writes with acks=0 have been sent to the
        brokers."""
        is_sending = self._is_resolving or self._brokers.have_unsent
        if self._gone_since is not None and (not is_sending or now - self._gone_since > _LINGER_SECONDS):
            self.close()

    def closed(self) -> None:
        if self._tally is not None:
            self._tally.connections -= 1
        self._fetcher.close()
        self._share_groups.close()
        for task in self._tasks:
            task.cancel()
        self._brokers.close()

    def _refuse_expired(self) -> None:
        self.refuse("session", "Its session has expired, and it has not signed in again.")

    def refuse(self, reason: str, text: str) -> None:
        if self._tally is not None:
            self._tally.failures += 1
        super().refuse(reason, text)

    @property
    def is_idle(self) -> bool:
        return not self._slots

    @property
    def is_logged_in(self) -> bool:
        """Where brokers demand no login, the first answer shows that they are content with the client."""
        if self._handshake.is_complete or self._was_served:
            return True
        return self._has_answer and not self._topology.demands_login

    @property
    def may_send_much(self) -> bool:
        return self.is_logged_in or self._topology.demands_login is False

    def check(self, now: float) -> None:
        if self._gone_since is None:
            super().check(now)
        else:
            self._leave(now)
        self._brokers.check(now)

    def pause_writing(self) -> None:
        self._brokers.pause(True)

    def resume_writing(self) -> None:
        self._brokers.pause(False)

    @property
    def _is_full(self) -> bool:
        return self._are_brokers_slow or len(self._slots) > _MAX_PENDING or self.pending_bytes > _MAX_PENDING_BYTES

    def _on_broker_writable(self, writable: bool) -> None:
        self._are_brokers_slow = not writable
        self.hold("pending", self._is_full)

    # -- answers

    def _answer(self, slot: _Slot, parts: Parts | None) -> None:
        """Sends answers in the order of their requests. ``parts`` is None for a request without an answer (acks=0)."""
        slot.parts, slot.is_answered = parts, True
        slots = self._slots
        while slots and slots[0].is_answered:
            done = slots.popleft()
            self.request_done(done.size)
            if done.parts is not None and self._gone_since is None and not self.is_closed:
                if self._tally is not None:
                    self._tally.bytes_to += sum(map(len, done.parts))
                self.transport.writelines(done.parts)
            metrics.latency(done.header.api_key).observe(time.monotonic() - done.received)
        if not self._is_full:
            self.hold("pending", False)

    def _answer_body(self, slot: _Slot, body: Struct) -> None:
        header = slot.header
        self._answer(slot, codec.write_response(header.api_key, header.version, header.correlation_id, body))

    # -- requests

    def _handle(self, slot: _Slot, frame: bytearray) -> None:
        header = slot.header
        metrics.requests(header.api_key).inc()
        if header.api_key in handshake.APIS:
            self._handle_handshake(slot, frame)
            return
        handler = self._session_handlers.get(header.api_key)
        if handler is not None:
            body = codec.read_request(header.api_key, header.version, frame, header.body)
            handler(body, header.version, partial(self._answer_body, slot))
            return
        route = ROUTES.get(header.api_key)
        if route is None:
            self.refuse("unsupported", f"It sent a request for API {header.api_key}, which the proxy does not support.")
            return
        body = _UNREAD
        if route.reads_request:
            body = codec.read_request(header.api_key, header.version, frame, header.body)
        self._route(_Exchange(slot, frame, route, body))

    def _route(self, exchange: _Exchange, *, is_second_try: bool = False) -> None:
        lookup = self.lookup()
        legs = exchange.route.legs(exchange.body, lookup)
        if not lookup.is_complete and not is_second_try:
            # A request whose broker remains unknown goes to any broker, whose error then names the cause.
            self.resolve(lookup, partial(self._route, exchange, is_second_try=True), holds=True)
            return
        if not legs:
            self._answer_body(exchange.slot, codec.response_type(exchange.slot.header.api_key)())
            return
        unanswered = [leg for leg in legs if leg.answer is None]
        exchange.legs, exchange.pending_legs = legs, len(unanswered)
        if not unanswered:
            self._finish(exchange, None)
        for leg in unanswered:
            self._send_leg(exchange, leg, _TRIES)

    def _send_leg(self, exchange: _Exchange, leg: Leg, tries: int) -> None:
        header = exchange.slot.header
        if leg.body is None:
            parts: Parts = [exchange.frame]
        else:
            parts = codec.write_request(header.api_key, header.version, 0, header.client_id, leg.body)
        connection = self._connection(leg.broker)
        if header.api_key == ApiKey.PRODUCE and exchange.body.acks == 0:
            connection.send(parts, None)
            exchange.pending_legs -= 1
            if exchange.pending_legs == 0:
                self._answer(exchange.slot, None)
            return
        patience = _SYNC_PATIENCE if header.api_key == ApiKey.SYNC_GROUP else 0.0
        if header.api_key == ApiKey.JOIN_GROUP:
            patience = max(exchange.body.rebalance_timeout_ms, exchange.body.session_timeout_ms) / 1000
        connection.send(parts, partial(self._leg_answered, exchange, leg, tries), patience=patience)

    def _leg_answered(self, exchange: _Exchange, leg: Leg, tries: int, answer: bytearray | Lost) -> None:
        if self.is_closed:
            return
        header, route = exchange.slot.header, exchange.route
        if isinstance(answer, Lost):
            self._leg_lost(exchange, leg, tries, answer)
            return
        self._served()
        if not route.reads_answer:
            codec.put_response_correlation(answer, header.correlation_id)
            self._answer(exchange.slot, [answer])
            return
        try:
            leg.answer = codec.read_response(header.api_key, header.version, answer)
        except MalformedError as error:
            self.refuse("broker", f"A broker's answer cannot be read: {error}")
            return
        route.answered(exchange.body, leg, self.lookup())
        exchange.pending_legs -= 1
        if exchange.pending_legs == 0:
            self._finish(exchange, answer)

    def _finish(self, exchange: _Exchange, frame: bytearray | None) -> None:
        """``frame`` is the last broker's answer, unchanged."""
        legs, slot = exchange.legs, exchange.slot
        if frame is not None and len(legs) == 1 and exchange.route.keeps(legs[0]):
            codec.put_response_correlation(frame, slot.header.correlation_id)
            self._answer(slot, [frame])
        else:
            self._answer_body(slot, exchange.route.merged(exchange.body, legs))

    def _leg_lost(self, exchange: _Exchange, leg: Leg, tries: int, lost: Lost) -> None:
        route, header = exchange.route, exchange.slot.header
        if time.monotonic() > self._handshake.expires:
            # The request was on its way when the session expired, for which the broker has closed the connection.
            self._refuse_expired()
            return
        is_any_broker = leg.broker is None
        if is_any_broker and tries > 1 and (lost is Lost.UNSENT or route.is_repeatable):
            self._send_leg(exchange, leg, tries - 1)
            return
        answer = route.lost(header.api_key, exchange.body, leg) if route.reads_request else None
        if answer is None:
            self.refuse("broker", "The connection to a broker was lost while a request was pending.")
            return
        leg.answer = answer
        exchange.pending_legs -= 1
        if exchange.pending_legs == 0:
            self._finish(exchange, None)

    def _served(self) -> None:
        """A broker has answered a request that is not about signing in."""
        self._was_served = True
        if not self._handshake.is_complete:
            self._topology.demands_login = False

    # -- ApiVersions and SASL

    def _handle_handshake(self, slot: _Slot, frame: bytearray) -> None:
        header = slot.header
        local = self._handshake.local_answer(header, frame)
        if local is not None:
            self._answer(slot, local)
            return

        def answered(answer: bytearray | Lost) -> None:
            if isinstance(answer, Lost):
                self.refuse("broker", "The broker closed the connection during the handshake.")
                return
            try:
                parts, login = self._handshake.answered(
                    header, answer, received=slot.received, is_single=self._is_single()
                )
            except MalformedError as error:
                self.refuse("broker", f"A broker's answer cannot be read: {error}")
                return
            self._has_answer = True
            if header.api_key == ApiKey.SASL_HANDSHAKE and self._handshake.is_pinned:
                self._topology.demands_login = True
            if login is not None:
                self._brokers.log_in_again(login)
            self._answer(slot, parts)

        self._connection(None, is_anonymous=True).send([frame], answered)

    def _is_single(self) -> bool:
        """Whether the cluster is a single broker, so that the client never needs to be signed in at another one."""
        return max(len(self._topology.brokers), len(self._config.first_contact_points)) == 1

    # -- brokers

    def _connection(self, broker: Broker | None, *, is_anonymous: bool = False) -> BrokerConnection:
        return self._brokers.to(broker, None if is_anonymous else self._handshake.login)

    def _home_closed(self) -> None:
        if self._handshake.is_pinned and not self.is_closed:
            self.refuse("broker", "The broker closed the connection during the handshake.")

    def request(
        self,
        api_key: ApiKey,
        broker: Broker | None,
        body: Struct,
        version: int,
        answered: Callable[[Struct | Lost], None],
        *,
        patience: float,
    ) -> None:
        def on_frame(frame: bytearray | Lost) -> None:
            if self.is_closed:
                return
            try:
                if isinstance(frame, Lost):
                    answered(frame)
                else:
                    self._served()
                    answered(codec.read_response(api_key, version, frame))
            except MalformedError as error:
                self.refuse("broker", f"A broker's answer cannot be read: {error}")

        parts = codec.write_request(api_key, version, 0, CLIENT_ID, body)
        self._connection(broker).send(parts, on_frame, patience=patience)

    # -- looking up what the topology lacks

    def lookup(self) -> Lookup:
        return Lookup(self._topology, self._nodes, self._rejected)

    def resolve(self, lookup: Lookup, then: Callable[[], None], *, holds: bool = False) -> None:
        """``holds``: later requests wait, so that they do not overtake the one that is being resolved."""
        if holds:
            self._is_resolving = True
        task = asyncio.create_task(self._resolve(lookup, then, holds))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _resolve(self, lookup: Lookup, then: Callable[[], None], holds: bool) -> None:
        try:
            async with asyncio.timeout(_RESOLVE_SECONDS):
                await discover(lookup, self._request_any)
        except (TimeoutError, MalformedError) as error:
            log.warning("The cluster's topology could not be requested: %s.", error or "no answer in time")
        if holds:
            self._is_resolving = False
        try:
            then()
            while holds and self._postponed and not self._is_resolving and not self.is_closed:
                self._handle(*self._postponed.popleft())
        except MalformedError as error:
            self.malformed(error)
            self.close()

    async def _request_any(self, api_key: ApiKey, version: int, body: Struct) -> Struct | None:
        for _ in range(_TRIES):
            with contextlib.suppress(ConnectionError):
                return await self._connection(None).request(api_key, version, body)
        return None
