"""Share groups (KIP-932): records of many brokers, acquired for one member and acknowledged by it.

As with Fetch there is a session with the client and one with each broker, each broker has at most one pending fetch,
and records that arrive too late for one request are held for the member's next. Acknowledgements are sent in separate
requests, because a fetch that carried them might have to wait for its broker's records.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from backend.kafka.proxy.broker_connection import Lost
from backend.kafka.proxy.routing import STALE_LEADER
from backend.kafka.proxy.sessions import GRACE_SECONDS, Brokers, Key, by_topic, next_epoch
from backend.kafka.proxy.topology import Broker
from backend.kafka.wire import codec
from backend.kafka.wire.api import ApiKey, ErrorCode
from backend.kafka.wire.structs import Struct

_FETCH = codec.request_type(ApiKey.SHARE_FETCH)
_FETCH_TOPIC = _FETCH.type_of("topics")
_FETCH_PARTITION = _FETCH_TOPIC.type_of("partitions")
_FORGOTTEN = _FETCH.type_of("forgotten_topics_data")
_FETCHED = codec.response_type(ApiKey.SHARE_FETCH)
_FETCHED_TOPIC = _FETCHED.type_of("responses")
_FETCHED_PARTITION = _FETCHED_TOPIC.type_of("partitions")
_ACKNOWLEDGE = codec.request_type(ApiKey.SHARE_ACKNOWLEDGE)
_ACKNOWLEDGE_TOPIC = _ACKNOWLEDGE.type_of("topics")
_ACKNOWLEDGE_PARTITION = _ACKNOWLEDGE_TOPIC.type_of("partitions")
_ACKNOWLEDGED = codec.response_type(ApiKey.SHARE_ACKNOWLEDGE)
_ACKNOWLEDGED_TOPIC = _ACKNOWLEDGED.type_of("responses")
_ACKNOWLEDGED_PARTITION = _ACKNOWLEDGED_TOPIC.type_of("partitions")

_NEW_SESSION, _LAST_REQUEST = 0, -1
_LOST_SESSION = (ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH)

Code = tuple[int, str | None]
"""An error code and its message."""
OnAcknowledged = Callable[[dict[Key, Code]], None]
"""Called with the outcome of acknowledgements."""


@dataclass
class _BrokerSession:
    """The session with one broker. ``epoch`` is that of the next request; ``sent`` are the partitions that the broker
    knows."""

    broker: Broker
    epoch: int = _NEW_SESSION
    sent: set[Key] = field(default_factory=set)
    is_open: bool = False
    """Whether a fetch is pending at the broker."""
    expires: float = 0.0

    def take_epoch(self) -> int:
        epoch, self.epoch = self.epoch, next_epoch(self.epoch)
        return epoch

    def reset(self) -> None:
        self.epoch = _NEW_SESSION
        self.sent = set()


@dataclass
class _Request:
    """The member's pending fetch. ``codes`` are the outcome of its acknowledgements."""

    body: Struct
    version: int
    answer: Callable[[Struct], None]
    deadline: float
    timer: asyncio.TimerHandle | None = None
    is_overdue: bool = False
    has_timed_out: bool = False
    """Whether to answer without the brokers whose fetches are still pending."""
    pending_acknowledgements: int = 0
    codes: dict[Key, Code] = field(default_factory=dict)


class ShareGroups:
    """The members of share groups on one client's connection."""

    def __init__(self, brokers: Brokers) -> None:
        self._cluster = brokers
        self._members: dict[tuple[str, str], _Member] = {}

    def fetch(self, body: Struct, version: int, answer: Callable[[Struct], None]) -> None:
        member = self._member(body)
        if isinstance(member, ErrorCode):
            answer(_FETCHED(error_code=member))
        elif body.share_session_epoch == _LAST_REQUEST:
            member.leave(_acknowledgements(body), version, lambda codes: answer(_fetched({}, codes)))
        else:
            member.fetch(body, version, answer)

    def acknowledge(self, body: Struct, version: int, answer: Callable[[Struct], None]) -> None:
        member = self._member(body)
        if isinstance(member, ErrorCode):
            answer(_ACKNOWLEDGED(error_code=member))
        elif body.share_session_epoch == _LAST_REQUEST:
            member.leave(_acknowledgements(body), version, lambda codes: answer(_acknowledged(codes)))
        else:
            member.acknowledge(_acknowledgements(body), version, lambda codes: answer(_acknowledged(codes)))

    def close(self) -> None:
        for member in self._members.values():
            member.close()

    def _member(self, body: Struct) -> "_Member | ErrorCode":
        """The member whose session the request continues or starts; the error if it does neither."""
        name, epoch = (body.group_id or "", body.member_id or ""), body.share_session_epoch
        if epoch == _NEW_SESSION:
            if name in self._members:
                self._members[name].close()
            self._members[name] = _Member(*name, self._cluster)
        member = self._members.get(name)
        if member is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch == _LAST_REQUEST:
            del self._members[name]
        elif not member.continues(epoch):
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        return member


class _Member:
    """One member's session."""

    def __init__(self, group_id: str, member_id: str, brokers: Brokers) -> None:
        self._group_id = group_id
        self._member_id = member_id
        self._cluster = brokers
        self._epoch = _NEW_SESSION
        self._session_partitions: set[Key] = set()
        self._brokers: dict[int, _BrokerSession] = {}
        self._ready: dict[Key, Struct] = {}
        self._holding: set[int] = set()
        """Brokers whose records or errors are in ``_ready``."""
        self._lock_timeout = 0
        self._request: _Request | None = None
        self._queue: deque[tuple[Struct, int, Callable[[Struct], None]]] = deque()

    def continues(self, epoch: int) -> bool:
        if epoch != self._epoch:
            return False
        self._epoch = next_epoch(epoch)
        return True

    def close(self) -> None:
        if self._request is not None and self._request.timer is not None:
            self._request.timer.cancel()
        self._request = None
        self._queue.clear()

    # -- the member's requests

    def fetch(self, body: Struct, version: int, answer: Callable[[Struct], None]) -> None:
        """Answers when records have arrived and all acknowledgements are answered, or when ``max_wait_ms`` are over.

        Fetches are answered one at a time.
        """
        if self._request is not None:
            self._queue.append((body, version, answer))
            return
        wait = max(body.max_wait_ms, 0) / 1000
        request = _Request(body, version, answer, time.monotonic() + wait, pending_acknowledgements=1)
        request.timer = asyncio.get_running_loop().call_later(wait, self._overdue, request)
        self._request = request
        self._session_partitions.update(
            (topic.topic_id, p.partition_index) for topic in body.topics for p in topic.partitions
        )
        self._session_partitions.difference_update(
            (t.topic_id, index) for t in body.forgotten_topics_data for index in t.partitions
        )
        self.acknowledge(_acknowledgements(body), version, partial(self._acknowledged, request))
        self._fetch_from_brokers()
        self._answer_if_enough()

    def acknowledge(self, acknowledgements: dict[Key, list[Struct]], version: int, done: OnAcknowledged) -> None:
        """Sends acknowledgements; ``done`` gets the code of each partition once all brokers have answered."""
        by_broker: dict[int, dict[Key, list[Struct]]] = {}
        for key, batches in acknowledgements.items():
            for session in self._sessions():
                if key in session.sent:
                    by_broker.setdefault(session.broker.id, {})[key] = batches
        self._send_acknowledgements(by_broker, version, _lost(acknowledgements), done, is_last=False)

    def leave(self, acknowledgements: dict[Key, list[Struct]], version: int, done: OnAcknowledged) -> None:
        """Ends the session, so that brokers release what the member has not acknowledged."""
        self.close()
        by_broker = {
            session.broker.id: {key: batches for key, batches in acknowledgements.items() if key in session.sent}
            for session in self._sessions()
        }
        self._send_acknowledgements(by_broker, version, _lost(acknowledgements), done, is_last=True)

    def _sessions(self) -> list[_BrokerSession]:
        return [session for session in self._brokers.values() if session.epoch != _NEW_SESSION]

    def _send_acknowledgements(
        self,
        by_broker: dict[int, dict[Key, list[Struct]]],
        version: int,
        codes: dict[Key, Code],
        done: OnAcknowledged,
        *,
        is_last: bool,
    ) -> None:
        waiting = set(by_broker)
        if not waiting:
            done(codes)

        def answered(session: _BrokerSession, answer: Struct | Lost) -> None:
            codes.update(_codes(session, by_broker[session.broker.id], answer))
            waiting.discard(session.broker.id)
            if not waiting:
                done(codes)

        for broker_id, batches in by_broker.items():
            session = self._brokers[broker_id]
            partitions = (
                (key, _ACKNOWLEDGE_PARTITION(partition_index=key[1], acknowledgement_batches=batches))
                for key, batches in batches.items()
            )
            body = _ACKNOWLEDGE(
                group_id=self._group_id,
                member_id=self._member_id,
                share_session_epoch=_LAST_REQUEST if is_last else session.take_epoch(),
                topics=by_topic(_ACKNOWLEDGE_TOPIC, partitions),
            )
            patience = max(session.expires - time.monotonic(), 0.0) if session.is_open else 0.0
            on_answer = partial(answered, session)
            self._cluster.request(ApiKey.SHARE_ACKNOWLEDGE, session.broker, body, version, on_answer, patience=patience)

    def _acknowledged(self, request: _Request, codes: dict[Key, Code]) -> None:
        request.codes.update(codes)
        request.pending_acknowledgements -= 1
        if request is self._request:
            self._answer_if_enough()

    # -- the brokers

    def _fetch_from_brokers(self, *, is_second_try: bool = False) -> None:
        """Sends a fetch to every broker that has none pending and whose last result has been delivered."""
        request = self._request
        if request is None:
            return
        lookup = self._cluster.lookup()
        by_broker: dict[Broker, set[Key]] = {}
        unknown = set()
        for key in self._session_partitions:
            leader = lookup.leader(*key)
            if leader is None:
                unknown.add(key)
            else:
                by_broker.setdefault(leader, set()).add(key)
        if unknown and not is_second_try:
            self._cluster.resolve(lookup, lambda: self._fetch_from_brokers(is_second_try=True))
        elif unknown:
            self._ready |= {key: _without_records(key, ErrorCode.NOT_LEADER_OR_FOLLOWER) for key in unknown}
        for broker in [s.broker for s in self._brokers.values() if s.sent and s.broker not in by_broker]:
            by_broker[broker] = set()
        for broker, keys in by_broker.items():
            session = self._brokers.get(broker.id)
            if session is None or session.broker != broker:
                session = self._brokers[broker.id] = _BrokerSession(broker)
            if not session.is_open and broker.id not in self._holding and (keys or session.sent):
                self._open(request, session, keys, len(by_broker))
        self._answer_if_enough()

    def _open(self, request: _Request, session: _BrokerSession, keys: set[Key], brokers: int) -> None:
        client = request.body
        wait = max(request.deadline - time.monotonic(), 0.0)
        added = ((key, _FETCH_PARTITION(partition_index=key[1])) for key in keys - session.sent)
        forgotten = ((key, key[1]) for key in session.sent - keys)
        body = _FETCH(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=session.take_epoch(),
            max_wait_ms=round(wait * 1000),
            min_bytes=-(-client.min_bytes // brokers),
            max_bytes=max(client.max_bytes // brokers, 1),
            max_records=-(-client.max_records // brokers),
            batch_size=client.batch_size,
            topics=by_topic(_FETCH_TOPIC, added),
            forgotten_topics_data=by_topic(_FORGOTTEN, forgotten),
        )
        session.sent, session.is_open, session.expires = keys, True, request.deadline
        answered = partial(self._answered, session)
        self._cluster.request(ApiKey.SHARE_FETCH, session.broker, body, request.version, answered, patience=wait)

    def _answered(self, session: _BrokerSession, answer: Struct | Lost) -> None:
        session.is_open = False
        if isinstance(answer, Lost) or answer.error_code in _LOST_SESSION:
            session.reset()
        elif answer.error_code:
            session.reset()
            self._finish((answer.error_code, answer.error_message))
        else:
            self._collect(session, answer)
        self._answer_if_enough()
        if self._request is not None and not (self._request.is_overdue or isinstance(answer, Lost)):
            self._fetch_from_brokers()

    def _collect(self, session: _BrokerSession, answer: Struct) -> None:
        self._lock_timeout = answer.acquisition_lock_timeout_ms
        topology = self._cluster.lookup().topology
        for topic in answer.responses:
            for partition in topic.partitions:
                if partition.error_code:
                    partition.current_leader = type(partition.current_leader)()
                    if partition.error_code in STALE_LEADER:
                        topology.forget_topic(topic.topic_id)
                elif not partition.acquired_records:
                    continue
                self._ready[topic.topic_id, partition.partition_index] = partition
                self._holding.add(session.broker.id)

    # -- the answer

    def _overdue(self, request: _Request) -> None:
        if request is not self._request:
            return
        if request.is_overdue:
            request.has_timed_out = True
        else:
            # Brokers wait as long as the client does, so their answers are about to arrive.
            request.is_overdue = True
            request.timer = asyncio.get_running_loop().call_later(GRACE_SECONDS, self._overdue, request)
        self._answer_if_enough()

    def _answer_if_enough(self) -> None:
        request = self._request
        if request is None or request.pending_acknowledgements:
            return
        is_due = any(s.is_open and s.expires <= request.deadline for s in self._brokers.values())
        if self._ready or request.has_timed_out or (request.is_overdue and not is_due):
            self._finish()

    def _finish(self, error: Code = (0, None)) -> None:
        request, self._request = self._request, None
        if request is None:
            return
        if request.timer is not None:
            request.timer.cancel()
        if error[0]:
            request.answer(_FETCHED(error_code=error[0], error_message=error[1]))
        else:
            ready, self._ready = self._ready, {}
            self._holding.clear()
            request.answer(_fetched(ready, request.codes, self._lock_timeout))
        if self._queue:
            self.fetch(*self._queue.popleft())


def _acknowledgements(body: Struct) -> dict[Key, list[Struct]]:
    return {
        (topic.topic_id, partition.partition_index): partition.acknowledgement_batches
        for topic in body.topics
        for partition in topic.partitions
        if partition.acknowledgement_batches
    }


def _codes(session: _BrokerSession, keys: Iterable[Key], answer: Struct | Lost) -> dict[Key, Code]:
    """One broker's outcome of acknowledgements. Restarts the session if the broker has lost it."""
    if isinstance(answer, Lost):
        session.reset()
        return _lost(keys)
    if answer.error_code:
        if answer.error_code in _LOST_SESSION:
            session.reset()
        return dict.fromkeys(keys, (answer.error_code, answer.error_message))
    return {
        (topic.topic_id, p.partition_index): (p.error_code, p.error_message)
        for topic in answer.responses
        for p in topic.partitions
    }


def _lost(keys: Iterable[Key]) -> dict[Key, Code]:
    """The outcome after a broker lost the session, and with it the member's acquired records."""
    return dict.fromkeys(keys, (ErrorCode.INVALID_RECORD_STATE, None))


def _without_records(key: Key, code: ErrorCode = ErrorCode.NONE) -> Struct:
    return _FETCHED_PARTITION(partition_index=key[1], error_code=code, records=b"")


def _fetched(partitions: dict[Key, Struct], codes: dict[Key, Code], lock_timeout: int = 0) -> Struct:
    for key, (code, text) in codes.items():
        partition = partitions.setdefault(key, _without_records(key))
        partition.acknowledge_error_code, partition.acknowledge_error_message = code, text
    return _FETCHED(acquisition_lock_timeout_ms=lock_timeout, responses=by_topic(_FETCHED_TOPIC, partitions.items()))


def _acknowledged(codes: dict[Key, Code]) -> Struct:
    partitions = (
        (key, _ACKNOWLEDGED_PARTITION(partition_index=key[1], error_code=code, error_message=text))
        for key, (code, text) in codes.items()
    )
    return _ACKNOWLEDGED(responses=by_topic(_ACKNOWLEDGED_TOPIC, partitions))
