"""Fetch: one client's view of many brokers' logs.

The proxy keeps an incremental fetch session (KIP-227) with the client, if it requests one, and one with each broker.
Each broker has at most one pending fetch, which it answers as soon as it has records; these become the client's next
answer. A fetch that is still pending when the client is answered stays pending, and its records are held for the
client's next request. So nothing is polled, and an idle broker never delays another's records.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from backend.kafka.proxy.broker_connection import Lost
from backend.kafka.proxy.routing import STALE_LEADER, Lookup
from backend.kafka.proxy.sessions import GRACE_SECONDS, Brokers, Key, by_topic, next_epoch
from backend.kafka.proxy.topology import NO_ID, Broker, TopicKey
from backend.kafka.wire import codec
from backend.kafka.wire.api import ApiKey, ErrorCode
from backend.kafka.wire.structs import Struct

_ANSWER = codec.response_type(ApiKey.FETCH)
_ANSWER_TOPIC = _ANSWER.type_of("responses")
_ANSWER_PARTITION = _ANSWER_TOPIC.type_of("partitions")
_REQUEST = codec.request_type(ApiKey.FETCH)
_REQUEST_TOPIC = _REQUEST.type_of("topics")
_FORGOTTEN = _REQUEST.type_of("forgotten_topics_data")

_SESSIONLESS, _NEW_SESSION = -1, 0
_SESSION_VERSION = 7
_PREFERENCE_SECONDS = 300.0
_LOST_SESSION = (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
_NOT_AT_FOLLOWER = (*STALE_LEADER, ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.REPLICA_NOT_AVAILABLE)


@dataclass
class _Session:
    """The session with one broker. ``sent`` are the partitions that the broker knows, with their positions."""

    session_id: int = 0
    epoch: int = 0
    sent: dict[Key, tuple[int, ...]] = field(default_factory=dict)
    is_open: bool = False
    """Whether a fetch is pending at the broker."""
    expires: float = 0.0


@dataclass
class _Request:
    """The client's pending fetch."""

    body: Struct
    version: int
    answer: Callable[[Struct], None]
    deadline: float
    is_full: bool
    timer: asyncio.TimerHandle | None = None
    is_overdue: bool = False
    had_failure: bool = False


@dataclass
class _Result:
    broker: int
    partition: Struct
    offset: int

    @property
    def size(self) -> int:
        records = self.partition.records
        return len(records) if records is not None else 0


class Fetcher:
    """Answers the fetches of one client."""

    def __init__(self, brokers: Brokers) -> None:
        self._cluster = brokers
        self._session_id = 0
        self._epoch = 0
        self._session_partitions: dict[Key, Struct] = {}
        self._brokers: dict[int, _Session] = {}
        self._preferred: dict[Key, tuple[int, float]] = {}
        self._last_offsets: dict[Key, tuple[int, int, int]] = {}
        self._ready: dict[Key, _Result] = {}
        self._request: _Request | None = None
        self._queue: deque[tuple[Struct, int, Callable[[Struct], None]]] = deque()

    def fetch(self, body: Struct, version: int, answer: Callable[[Struct], None]) -> None:
        """Answers when ``min_bytes`` have arrived or ``max_wait_ms`` are over. Fetches are answered one at a time."""
        if self._request is not None:
            self._queue.append((body, version, answer))
            return
        error = self._update_session(body)
        if error is not None:
            answer(_ANSWER(error_code=error))
            return
        wait = max(body.max_wait_ms, 0) / 1000
        is_full = body.session_epoch in (_SESSIONLESS, _NEW_SESSION)
        request = _Request(body, version, answer, time.monotonic() + wait, is_full)
        request.timer = asyncio.get_running_loop().call_later(wait, self._overdue, request)
        self._request = request
        self._drop_stale()
        self._fetch_from_brokers()
        self._answer_if_enough()

    def close(self) -> None:
        if self._request is not None and self._request.timer is not None:
            self._request.timer.cancel()
        self._request = None
        self._queue.clear()

    # -- the client's session

    def _update_session(self, body: Struct) -> ErrorCode | None:
        """Updates the client's session. Returns the error if the request does not continue the current session."""
        epoch = body.session_epoch
        if epoch in (_SESSIONLESS, _NEW_SESSION):
            self._session_partitions = dict(_partitions(body))
            self._session_id = random.randint(1, 2**31 - 1) if epoch == _NEW_SESSION else 0
            self._epoch = 1
            return None
        if body.session_id != self._session_id:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if epoch != self._epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        self._epoch = next_epoch(self._epoch)
        for topic in body.forgotten_topics_data:
            for partition in topic.partitions:
                self._session_partitions.pop((_key(topic), partition), None)
        self._session_partitions.update(_partitions(body))
        return None

    def _drop_stale(self) -> None:
        """Drops results for positions that the client no longer requests."""
        for key, result in list(self._ready.items()):
            partition = self._session_partitions.get(key)
            if partition is None or partition.fetch_offset != result.offset:
                del self._ready[key]

    # -- the brokers

    def _fetch_from_brokers(self, *, is_second_try: bool = False) -> None:
        """Sends a fetch to every broker that has none pending and whose last result has been delivered."""
        request = self._request
        if request is None:
            return
        lookup = self._cluster.lookup()
        by_broker: dict[Broker | None, list[Key]] = {}
        for key in self._session_partitions:
            by_broker.setdefault(self._broker_of(key, lookup), []).append(key)
        if not lookup.is_complete and not is_second_try:
            self._cluster.resolve(lookup, lambda: self._fetch_from_brokers(is_second_try=True))
            by_broker.pop(None, None)
        holding = {result.broker for result in self._ready.values() if result.size or result.partition.error_code}
        for broker, keys in by_broker.items():
            broker_id = broker.id if broker is not None else -1
            session = self._brokers.setdefault(broker_id, _Session())
            if not session.is_open and broker_id not in holding:
                self._open(request, broker, session, keys, len(by_broker))

    def _broker_of(self, key: Key, lookup: Lookup) -> Broker | None:
        preferred = self._preferred.get(key)
        if preferred is not None:
            broker = lookup.topology.brokers.get(preferred[0])
            if broker is not None and preferred[1] > time.monotonic():
                return broker
            del self._preferred[key]
        return lookup.leader(*key)

    def _open(self, request: _Request, broker: Broker | None, session: _Session, keys: list[Key], brokers: int) -> None:
        client = request.body
        wait = max(request.deadline - time.monotonic(), 0.0)
        body = _REQUEST(
            cluster_id=client.cluster_id,
            replica_id=client.replica_id,
            max_wait_ms=round(wait * 1000),
            min_bytes=-(-client.min_bytes // brokers),
            max_bytes=max(client.max_bytes // brokers, 1),
            isolation_level=client.isolation_level,
            rack_id=client.rack_id,
        )
        signatures = {key: _signature(self._session_partitions[key]) for key in keys}
        if broker is None or request.version < _SESSION_VERSION:
            body.session_epoch = _SESSIONLESS
            changed: Iterable[Key] = keys
        elif session.session_id == 0:
            changed = keys
        else:
            body.session_id, body.session_epoch = session.session_id, session.epoch
            changed = [key for key in keys if session.sent.get(key) != signatures[key]]
            forgotten = ((key, key[1]) for key in session.sent if key not in signatures)
            body.forgotten_topics_data = by_topic(_FORGOTTEN, forgotten)
        body.topics = by_topic(_REQUEST_TOPIC, ((key, self._session_partitions[key]) for key in changed))
        session.sent, session.is_open, session.expires = signatures, True, request.deadline
        broker_id = broker.id if broker is not None else -1
        answered = partial(self._answered, broker_id, session)
        self._cluster.request(ApiKey.FETCH, broker, body, request.version, answered, patience=wait)

    def _answered(self, broker_id: int, session: _Session, answer: Struct | Lost) -> None:
        session.is_open = False
        if isinstance(answer, Lost):
            self._brokers.pop(broker_id, None)
            self._note_failure()
        elif answer.error_code in _LOST_SESSION:
            session.session_id = 0
        elif answer.error_code:
            session.session_id = 0
            self._finish(answer.error_code)
        else:
            session.session_id = answer.session_id
            session.epoch = next_epoch(session.epoch) if answer.session_id else 0
            self._collect(broker_id, session, answer)
        self._answer_if_enough()
        if self._request is not None and not (self._request.is_overdue or isinstance(answer, Lost)):
            self._fetch_from_brokers()

    def _note_failure(self) -> None:
        """After a failure the client is not answered early, since it would retry immediately."""
        if self._request is not None:
            self._request.had_failure = True

    def _collect(self, broker_id: int, session: _Session, answer: Struct) -> None:
        lookup = self._cluster.lookup()
        for topic in answer.responses:
            for partition in topic.partitions:
                key = (_key(topic), partition.partition_index)
                if key in session.sent:
                    self._collect_partition(key, _Result(broker_id, partition, session.sent[key][0]), lookup)
        self._drop_stale()

    def _collect_partition(self, key: Key, result: _Result, lookup: Lookup) -> None:
        partition, code = result.partition, result.partition.error_code
        if key in self._preferred and code in _NOT_AT_FOLLOWER:
            del self._preferred[key]
            return
        if partition.preferred_read_replica >= 0:
            expires = time.monotonic() + _PREFERENCE_SECONDS
            self._preferred[key] = (partition.preferred_read_replica, expires)
            partition.preferred_read_replica = -1
            if not result.size:
                return
        if code:
            partition.current_leader = type(partition.current_leader)()
            if code in STALE_LEADER:
                lookup.topology.forget_topic(key[0])
        elif partition.high_watermark >= 0:
            self._last_offsets[key] = (
                partition.high_watermark,
                partition.last_stable_offset,
                partition.log_start_offset,
            )
        self._ready[key] = result

    # -- the answer

    def _overdue(self, request: _Request) -> None:
        if request is not self._request:
            return
        if request.is_overdue:
            self._finish()
            return
        # Brokers wait as long as the client does, so their answers are about to arrive.
        request.is_overdue = True
        request.timer = asyncio.get_running_loop().call_later(GRACE_SECONDS, self._overdue, request)
        self._answer_if_enough()

    def _answer_if_enough(self) -> None:
        request = self._request
        if request is None:
            return
        results = self._ready.values()
        size = sum(result.size for result in results)
        has_enough = size >= request.body.min_bytes if request.body.min_bytes > 0 else bool(size)
        if has_enough or any(result.partition.error_code for result in results):
            self._finish()
            return
        is_due = any(s.is_open and s.expires <= request.deadline for s in self._brokers.values())
        has_answer_of_all = request.body.min_bytes <= 0 and bool(self._brokers) and not request.had_failure
        if not is_due and (request.is_overdue or has_answer_of_all):
            self._finish()

    def _finish(self, error: int = 0) -> None:
        request, self._request = self._request, None
        if request is None:
            return
        if request.timer is not None:
            request.timer.cancel()
        answer = _ANSWER(error_code=error, session_id=0 if error else self._session_id)
        if not error:
            ready, self._ready = self._ready, {}
            partitions = {key: result.partition for key, result in ready.items()}
            if request.is_full:
                partitions |= self._unchanged(partitions, is_complete=request.body.session_epoch == _NEW_SESSION)
            answer.responses = by_topic(_ANSWER_TOPIC, partitions.items())
        request.answer(answer)
        if self._queue:
            self.fetch(*self._queue.popleft())

    def _unchanged(self, answered: dict[Key, Struct], *, is_complete: bool) -> dict[Key, Struct]:
        """Adds the partitions without news to a full answer, with their last known offsets or with none."""
        missing = {}
        for key in self._session_partitions:
            if key not in answered and (is_complete or key in self._last_offsets):
                high, stable, start = self._last_offsets.get(key, (-1, -1, -1))
                missing[key] = _ANSWER_PARTITION(
                    partition_index=key[1],
                    high_watermark=high,
                    last_stable_offset=stable,
                    log_start_offset=start,
                    records=b"",
                )
        return missing


def _key(topic: Struct) -> TopicKey:
    name: str = topic.topic
    return name if topic.topic_id == NO_ID else bytes(topic.topic_id)


def _partitions(body: Struct) -> Iterable[tuple[Key, Struct]]:
    for topic in body.topics:
        for partition in topic.partitions:
            yield (_key(topic), partition.partition), partition


def _signature(partition: Struct) -> tuple[int, ...]:
    """The fields that a broker must be sent again when they change; the position is first."""
    return (
        partition.fetch_offset,
        partition.partition_max_bytes,
        partition.current_leader_epoch,
        partition.last_fetched_epoch,
        partition.log_start_offset,
    )
