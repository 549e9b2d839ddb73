"""One client's connection: its requests go to brokers, its answers come back in the order of the requests."""

import asyncio
import contextlib
import logging
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from backend.kafka.proxy import handshake, metrics
from backend.kafka.proxy.activity import Tally
from backend.kafka.proxy.addresses import learn_coordinator
from backend.kafka.proxy.broker_connection import CLIENT_ID, BrokerConnection, Lost
from backend.kafka.proxy.config import Address
from backend.kafka.proxy.context import Context
from backend.kafka.proxy.fetch import Fetcher
from backend.kafka.proxy.routes import ROUTES
from backend.kafka.proxy.routing import Leg, Lookup, Route
from backend.kafka.proxy.sasl import Login
from backend.kafka.proxy.share import ShareGroups
from backend.kafka.proxy.topology import Broker
from backend.kafka.wire import codec
from backend.kafka.wire.api import ApiKey
from backend.kafka.wire.codec import Parts, RequestHeader, Struct
from backend.kafka.wire.framing import FrameProtocol
from backend.kafka.wire.primitives import MalformedError

log = logging.getLogger(__name__)

_MOST_OPEN = 64
_MOST_OPEN_BYTES = 16 * 1024 * 1024
"""Requests of one client that may be open, and their size, before it is not read from."""
_SYNC_PATIENCE = 300.0
"""A member waits in SyncGroup for as long as the leader of its group takes."""
_TRIES = 3
"""Of different brokers, for what any of them answers."""
_LINGER_SECONDS = 5.0
_METADATA_VERSION = 12
_FIND_COORDINATOR_VERSION = 4
_RESOLVE_SECONDS = 10.0

_Take = Callable[[Struct, int, Callable[[Struct], None]], None]

_UNREAD = Struct()
"""In place of a request whose route needs not know what is in it."""


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
    """A request on its way through one or several brokers."""

    slot: _Slot
    frame: bytearray
    route: Route
    body: Struct
    legs: list[Leg] = field(default_factory=list)
    open_legs: int = 0


class ClientConnection(FrameProtocol):
    """``on_closed`` is called once."""

    def __init__(self, context: Context, on_closed: Callable[["ClientConnection"], None]) -> None:
        super().__init__(context.config.max_frame_bytes)
        self._config = context.config
        self._topology = context.topology
        self._nodes = context.nodes
        self._activity = context.activity
        self._tally: Tally | None = None
        self._on_closed = on_closed
        self._brokers: dict[Address, BrokerConnection] = {}
        self._home: Address | None = None
        self._failed: set[Address] = set()
        self._slots: deque[_Slot] = deque()
        self._open_bytes = 0
        self._postponed: deque[tuple[_Slot, bytearray]] = deque()
        self._is_resolving = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_paused = False
        self._are_brokers_slow = False
        self._is_closed = False
        self._gone_since: float | None = None
        self._handshake = handshake.Handshake(context.tokens)
        self._fetcher = Fetcher(self)
        self._share_groups = ShareGroups(self)
        self._with_sessions: dict[int, _Take] = {
            ApiKey.FETCH: self._fetcher.fetch,
            ApiKey.SHARE_FETCH: self._share_groups.fetch,
            ApiKey.SHARE_ACKNOWLEDGE: self._share_groups.acknowledge,
        }
        self.peer = "?"

    # -- the client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        host, port, *_ = transport.get_extra_info("peername") or ("?", 0)
        self.peer = f"{host}:{port}"

    def frame_received(self, frame: bytearray) -> None:
        header = codec.read_request_header(frame)
        tally = self._tally
        if tally is None:
            tally = self._tally = self._activity.clients.of(header.client_id or "")
            tally.connections += 1
        tally.requests += 1
        tally.bytes_from += len(frame)
        slot = _Slot(header, time.monotonic(), len(frame))
        self._slots.append(slot)
        self._open_bytes += slot.size
        if self._is_full:
            self._pause(True)
        if self._is_resolving:
            self._postponed.append((slot, frame))
        else:
            self._take(slot, frame)

    def malformed(self, reason: str) -> None:
        log.warning("Client %s: %s The connection is closed.", self.peer, reason)
        metrics.REFUSED.labels("malformed").inc()

    def connection_lost(self, error: Exception | None) -> None:
        self._gone_since = time.monotonic()
        self._leave(self._gone_since)

    def _leave(self, now: float) -> None:
        """A client may write with acks=0 and go: what it has sent still reaches the brokers."""
        is_sending = self._is_resolving or any(c.has_unsent for c in self._brokers.values())
        if self._gone_since is not None and (not is_sending or now - self._gone_since > _LINGER_SECONDS):
            self.close()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._tally is not None:
            self._tally.connections -= 1
        self.transport.abort()
        self._fetcher.close()
        self._share_groups.close()
        for task in self._tasks:
            task.cancel()
        for connection in list(self._brokers.values()):
            connection.close()
        self._on_closed(self)

    def refuse(self, reason: str, text: str) -> None:
        log.warning("Client %s: %s The connection is closed.", self.peer, text)
        metrics.REFUSED.labels(reason).inc()
        if self._tally is not None:
            self._tally.failures += 1
        self.close()

    @property
    def is_idle(self) -> bool:
        return not self._slots

    def stop_reading(self) -> None:
        """No more requests are taken: the proxy is being stopped."""
        self.transport.pause_reading()

    def check(self, now: float) -> None:
        self._leave(now)
        for connection in list(self._brokers.values()):
            connection.check(now)

    def pause_writing(self) -> None:
        for connection in self._brokers.values():
            connection.pause(True)

    def resume_writing(self) -> None:
        for connection in self._brokers.values():
            connection.pause(False)

    @property
    def _is_full(self) -> bool:
        return self._are_brokers_slow or len(self._slots) > _MOST_OPEN or self._open_bytes > _MOST_OPEN_BYTES

    def _pause(self, paused: bool) -> None:
        if paused != self._is_paused and self._gone_since is None and not self._is_closed:
            self._is_paused = paused
            (self.transport.pause_reading if paused else self.transport.resume_reading)()

    def _on_broker_writable(self, writable: bool) -> None:
        self._are_brokers_slow = not writable
        self._pause(self._is_full)

    # -- answers

    def _answer(self, slot: _Slot, parts: Parts | None) -> None:
        """Parts for None: the request has no answer (acks=0). Answers leave in the order of their requests."""
        slot.parts, slot.is_answered = parts, True
        slots = self._slots
        while slots and slots[0].is_answered:
            done = slots.popleft()
            self._open_bytes -= done.size
            if done.parts is not None and self._gone_since is None and not self._is_closed:
                if self._tally is not None:
                    self._tally.bytes_to += sum(map(len, done.parts))
                self.transport.writelines(done.parts)
            metrics.latency(done.header.api_key).observe(time.monotonic() - done.received)
        if self._is_paused and not self._is_full:
            self._pause(False)

    def _answer_body(self, slot: _Slot, body: Struct) -> None:
        header = slot.header
        self._answer(slot, codec.write_response(header.api_key, header.version, header.correlation_id, body))

    # -- requests

    def _take(self, slot: _Slot, frame: bytearray) -> None:
        header = slot.header
        metrics.requests(header.api_key).inc()
        if header.api_key in handshake.APIS:
            self._take_handshake(slot, frame)
            return
        take = self._with_sessions.get(header.api_key)
        if take is not None:
            body = codec.read_request(header.api_key, header.version, frame, header.body)
            take(body, header.version, partial(self._answer_body, slot))
            return
        route = ROUTES.get(header.api_key)
        if route is None:
            self.refuse("unsupported", f"It asks for API {header.api_key}, which the proxy does not offer.")
            return
        body = _UNREAD
        if route.reads_request:
            body = codec.read_request(header.api_key, header.version, frame, header.body)
        self._route(_Exchange(slot, frame, route, body))

    def _route(self, exchange: _Exchange, *, is_second_try: bool = False) -> None:
        lookup = self.lookup()
        legs = exchange.route.legs(exchange.body, lookup)
        if not lookup.is_complete and not is_second_try:
            # Whatever cannot be found out goes to any broker, whose answer then says what is wrong.
            self.resolve(lookup, partial(self._route, exchange, is_second_try=True), holds=True)
            return
        exchange.legs, exchange.open_legs = legs, len(legs)
        if not legs:
            self._answer_body(exchange.slot, codec.response_type(exchange.slot.header.api_key)())
        for leg in legs:
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
            exchange.open_legs -= 1
            if exchange.open_legs == 0:
                self._answer(exchange.slot, None)
            return
        patience = _SYNC_PATIENCE if header.api_key == ApiKey.SYNC_GROUP else 0.0
        if header.api_key == ApiKey.JOIN_GROUP:
            patience = max(exchange.body.rebalance_timeout_ms, exchange.body.session_timeout_ms) / 1000
        connection.send(parts, partial(self._leg_answered, exchange, leg, tries), patience=patience)

    def _leg_answered(self, exchange: _Exchange, leg: Leg, tries: int, answer: bytearray | Lost) -> None:
        if self._is_closed:
            return
        header, route = exchange.slot.header, exchange.route
        if isinstance(answer, Lost):
            self._leg_lost(exchange, leg, tries, answer)
            return
        if not route.reads_answer:
            codec.put_response_correlation(answer, header.correlation_id)
            self._answer(exchange.slot, [answer])
            return
        try:
            leg.answer = codec.read_response(header.api_key, header.version, answer)
        except MalformedError as error:
            self.refuse("broker", f"A broker's answer cannot be read: {error}.")
            return
        route.answered(exchange.body, leg, self.lookup())
        exchange.open_legs -= 1
        if exchange.open_legs == 0:
            self._finish(exchange, answer)

    def _finish(self, exchange: _Exchange, frame: bytearray | None) -> None:
        """``frame`` is the last broker's answer as it came."""
        legs, slot = exchange.legs, exchange.slot
        if frame is not None and len(legs) == 1 and exchange.route.keeps(legs[0]):
            codec.put_response_correlation(frame, slot.header.correlation_id)
            self._answer(slot, [frame])
        else:
            self._answer_body(slot, exchange.route.merged(exchange.body, legs))

    def _leg_lost(self, exchange: _Exchange, leg: Leg, tries: int, lost: Lost) -> None:
        route, header = exchange.route, exchange.slot.header
        is_anybodys = leg.broker is None
        if is_anybodys and tries > 1 and (lost is Lost.UNSENT or route.is_repeatable):
            self._send_leg(exchange, leg, tries - 1)
            return
        answer = route.lost(header.api_key, exchange.body, leg) if route.reads_request else None
        if answer is None:
            self.refuse("broker", "A broker was lost while it was asked.")
            return
        leg.answer = answer
        exchange.open_legs -= 1
        if exchange.open_legs == 0:
            self._finish(exchange, None)

    # -- ApiVersions and SASL

    def _take_handshake(self, slot: _Slot, frame: bytearray) -> None:
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
                parts, login = self._handshake.answered(header, answer, is_single=self._is_single())
            except MalformedError as error:
                self.refuse("broker", f"A broker's answer cannot be read: {error}.")
                return
            if login is not None:
                self._signed_in(login)
            self._answer(slot, parts)

        self._connection(None, is_anonymous=True).send([frame], answered)

    def _is_single(self) -> bool:
        """Whether all there is to reach is one broker, so that no other must learn who the client is."""
        return max(len(self._topology.brokers), len(self._config.first_contact_points)) == 1

    def _signed_in(self, login: Login) -> None:
        for address, connection in self._brokers.items():
            if address != self._home:
                connection.log_in_again(login)

    # -- brokers

    def _connection(self, broker: Broker | None, *, is_anonymous: bool = False) -> BrokerConnection:
        """The connection to a broker; for None to the one that is asked whatever any can answer."""
        address = broker.address if broker is not None else self._home_address()
        found = self._brokers.get(address)
        if found is None:
            if broker is not None and self._nodes.local.rack is not None and broker.rack != self._nodes.local.rack:
                metrics.OUT_OF_RACK.inc()
            found = self._brokers[address] = BrokerConnection(
                address,
                self._config,
                tally=self._activity.brokers.of(str(address)),
                tls=self._config.tls.brokers,
                login=None if is_anonymous else self._handshake.login,
                on_closed=self._broker_closed,
                on_writable=self._on_broker_writable,
            )
        return found

    def _home_address(self) -> Address:
        if self._home is None:
            rack = self._nodes.local.rack
            brokers = list(self._topology.brokers.values())
            near = [broker.address for broker in brokers if broker.rack == rack]
            for addresses in (near, [broker.address for broker in brokers], self._config.first_contact_points):
                good = [address for address in addresses if address not in self._failed]
                if good:
                    self._home = random.choice(good)
                    return self._home
            self._failed.clear()
            self._home = random.choice(self._config.first_contact_points)
        return self._home

    def _broker_closed(self, connection: BrokerConnection, has_failed: bool) -> None:
        address = connection.address
        if self._brokers.get(address) is connection:
            del self._brokers[address]
        if self._home == address:
            self._home = None
            if has_failed:
                self._failed.add(address)
            if self._handshake.is_pinned and not self._is_closed:
                self.refuse("broker", "The broker closed the connection during the handshake.")
        if has_failed:
            for broker in self._topology.brokers.values():
                if broker.address == address:
                    self._topology.suspect(broker)
                    break

    def ask(
        self,
        api_key: ApiKey,
        broker: Broker | None,
        body: Struct,
        version: int,
        answered: Callable[[Struct | Lost], None],
        *,
        patience: float,
    ) -> None:
        def take(frame: bytearray | Lost) -> None:
            if self._is_closed:
                return
            try:
                answered(frame if isinstance(frame, Lost) else codec.read_response(api_key, version, frame))
            except MalformedError as error:
                self.refuse("broker", f"A broker's answer cannot be read: {error}.")

        parts = codec.write_request(api_key, version, 0, CLIENT_ID, body)
        self._connection(broker).send(parts, take, patience=patience)

    # -- finding out what is missing

    def lookup(self) -> Lookup:
        return Lookup(self._topology, self._nodes)

    def resolve(self, lookup: Lookup, then: Callable[[], None], *, holds: bool = False) -> None:
        """``holds``: later requests wait, so that they do not overtake."""
        if holds:
            self._is_resolving = True
        task = asyncio.create_task(self._resolve(lookup, then, holds))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _resolve(self, lookup: Lookup, then: Callable[[], None], holds: bool) -> None:
        try:
            async with asyncio.timeout(_RESOLVE_SECONDS):
                await self._find_out(lookup)
        except (TimeoutError, MalformedError) as error:
            log.warning("The cluster's topology could not be asked for: %s", error or "no answer in time")
        if holds:
            self._is_resolving = False
        try:
            then()
            while holds and self._postponed and not self._is_resolving and not self._is_closed:
                self._take(*self._postponed.popleft())
        except MalformedError as error:
            self.malformed(str(error))
            self.close()

    async def _find_out(self, lookup: Lookup) -> None:
        if lookup.topics or lookup.cluster or not self._topology.brokers:
            await self._find_topics(lookup)
        for kind, key in lookup.coordinators:
            body = codec.request_type(ApiKey.FIND_COORDINATOR)(key_type=kind, coordinator_keys=[key])
            answer = await self._ask(ApiKey.FIND_COORDINATOR, _FIND_COORDINATOR_VERSION, body)
            for found in answer.coordinators if answer is not None else ():
                learn_coordinator(kind, key, found, lookup)

    async def _find_topics(self, lookup: Lookup) -> None:
        request = codec.request_type(ApiKey.METADATA)
        topic = request.type_of("topics")
        topics = [topic(name=k) if isinstance(k, str) else topic(topic_id=k, name=None) for k in lookup.topics]
        answer = await self._ask(
            ApiKey.METADATA, _METADATA_VERSION, request(topics=topics, allow_auto_topic_creation=False)
        )
        if answer is not None:
            self._topology.learn_metadata(answer)

    async def _ask(self, api_key: ApiKey, version: int, body: Struct) -> Struct | None:
        """A question of the proxy's own; None when no broker answers."""
        for _ in range(_TRIES):
            with contextlib.suppress(ConnectionError):
                return await self._connection(None).ask(api_key, version, body)
        return None
