"""Between the engine and Redis: decides whether an attempt may be made, and reports its outcome.

All requests of an output that arrive during one round trip go into the next: Redis is called
once per batch. While Redis is unavailable, each output continues with its own breaker and its
fraction of the rate limit, and reports to Redis once it is available again.
"""

import asyncio
import contextlib
import hashlib
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from redis.exceptions import NoScriptError, RedisError

from backend.domain.breaker import PROBE_SECONDS, Breaker, BreakerPolicy, BreakerState
from backend.domain.rate_limit import RateLimit, RateLimitPolicy
from backend.domain.reasons import Reason
from backend.network import tasks
from backend.network.redis_client import async_redis_client
from backend.resilience.scripts import EVENTS, LEDGER_HORIZON, OutputKey, Script, script

log = logging.getLogger(__name__)

TOKEN_HORIZON_SECONDS = 1.0
"""A message waits at most this long for its token, or for the end of a hold; otherwise it becomes a dead letter with a
due time."""

_LEDGER_MOST = 5_000_000
"""Deliveries of an output in each half of the ledger, 54 bytes each, whatever the horizon."""
_LEDGER_KEPT_SECONDS = 30 * 86400
"""For outputs that are not used any more: longer than any message stays in Kafka."""
_ANSWER_SECONDS = 1.0
_UNAVAILABLE_SECONDS = 1.0
_SAME_SECONDS = 1.0
"""Redis' time of a hold and that of a task are the same if they differ by no more than an answer takes."""
_BATCH = 500
_GATHER_SECONDS = 0.002
_MARKS_KEPT = 100_000

Kind = Literal["first", "redelivery", "retry"]
_LETTERS: dict[Kind, str] = {"first": "f", "redelivery": "r", "retry": "t"}
_NO_ID = bytes(16)


@dataclass(frozen=True, slots=True)
class Send:
    """The attempt may be made, ``wait`` seconds from now. The outcome of a ``probe`` closes or opens the breaker."""

    wait: float = 0.0
    probe: bool = False


@dataclass(frozen=True, slots=True)
class Repeat:
    """The message was already delivered to the output, when it was read at ``position``."""

    position: str


@dataclass(frozen=True, slots=True)
class Held:
    """The attempt may not be made before ``due`` (Unix time). ``asked``: the receiver asked to be left alone. ``cause``
    is the error that opened the breaker; empty when this task opened it without Redis."""

    reason: Literal[Reason.BREAKER_OPEN, Reason.RATE_LIMITED]
    due: float
    asked: bool = False
    cause: str = ""


Admission = Send | Repeat | Held
_SEND_NOW = Send()


@dataclass(slots=True)
class _Request:
    kind: Kind
    message_id: bytes
    answer: asyncio.Future[Admission]


@dataclass
class _Report:
    """Outcomes that have not been reported to Redis yet."""

    errors: list[tuple[str, str]] = field(default_factory=list)
    """A message and the cause of its error, or no cause once it was delivered after all; in the order of events."""
    probe: Literal["", "ok", "failed"] = ""
    delivered: deque[tuple[bytes, str]] = field(default_factory=lambda: deque(maxlen=_MARKS_KEPT))
    held_until: float = 0.0
    """By this task's clock."""

    def __bool__(self) -> bool:
        return bool(self.errors or self.probe or self.delivered or self.held_until)


class OutputGate:
    """The gate as one output uses it."""

    def __init__(self, key: OutputKey, breaker: BreakerPolicy, limit: RateLimitPolicy | None, gate: "Gate") -> None:
        self.key = key
        self.limit_policy = limit
        self.breaker = Breaker(breaker)
        """The local state; a copy of Redis' state while that is available."""
        self.opened = asyncio.Event()
        """Set while the breaker is not closed: waiting for a retry is pointless."""
        self.epoch = 0
        """Grows with every event that may open the breaker: an older admission should be requested again."""
        self.holds = 0
        """Grows with every hold: an older admission, also of a probe, should be requested again."""
        self._held_until = 0.0
        """The receiver asked to be left alone until then, by this task's clock."""
        self._loop = asyncio.get_running_loop()
        self._gate = gate
        self._limit = self._local_limit()
        self._requests: list[_Request] = []
        self._report = _Report()

    def configure(self, breaker: BreakerPolicy, limit: RateLimitPolicy | None) -> None:
        """Applies new policies; the breaker's state and the tokens that were taken stay."""
        self.breaker.policy = breaker
        if limit != self.limit_policy:
            self.limit_policy = limit
            self._limit = self._local_limit()

    def _local_limit(self) -> RateLimit | None:
        return RateLimit(self._gate.fraction_of(self.limit_policy)) if self.limit_policy else None

    def admit(self, kind: Kind, message_id: str) -> asyncio.Future[Admission]:
        """Whether an attempt may be made now. The ledger is consulted for all but retries."""
        answer: asyncio.Future[Admission] = self._loop.create_future()
        self._requests.append(_Request(kind, _as_bytes(message_id) if kind != "retry" else _NO_ID, answer))
        self._gate.has_work(self)
        return answer

    async def turn(self, kind: Kind, message_id: str) -> Admission:
        """Like ``admit``, but an attempt that is admitted may be made at once: waits for its token, and asks again if
        the receiver asks to be left alone in the meantime."""
        while True:
            holds = self.holds
            admission = await self.admit(kind, message_id)
            if not isinstance(admission, Send):
                return admission
            if admission.wait > 0:
                await asyncio.sleep(admission.wait)
            if holds == self.holds:
                return admission

    def delivered(self, message_id: str, position: str, *, probe: bool, again: bool = False) -> None:
        """``again`` as for ``failed``."""
        self._report.delivered.append((_as_bytes(message_id), position))
        self.answered(message_id, probe=probe, again=again)
        self._gate.has_work(self)

    def answered(self, message_id: str = "", *, probe: bool, again: bool = False) -> None:
        """The receiver works, though it may have rejected the message; the ledger is not updated."""
        if again:
            self._report.errors.append((_as_bytes(message_id).hex(), ""))
        if probe:
            self._report.probe = "ok"
        if again or probe:
            self._gate.has_work(self)

    def failed(self, cause: str, message_id: str = "", *, probe: bool, again: bool = False) -> None:
        """An attempt failed, and not because of the message. ``again`` says that an earlier attempt for the message
        was reported: each message counts once."""
        if again and not probe:
            return
        self.epoch += 1
        if not again:
            self._report.errors.append((_as_bytes(message_id).hex(), cause or "Failed without a cause."))
        if probe:
            self._report.probe = "failed"
        self._gate.has_work(self)

    def hold(self, seconds: float) -> None:
        """The receiver asks to be left alone for so long: no task makes an attempt until then."""
        until = self._gate.now() + seconds
        self._report.held_until = max(self._report.held_until, until)
        if until > self._held_until:
            self._keep_hold(until)
        self._gate.has_work(self)

    # -- called by the gate ---------------------------------------------------

    def take(self) -> tuple[list[_Request], _Report]:
        requests, self._requests = self._requests[:_BATCH], self._requests[_BATCH:]
        report, self._report = self._report, _Report()
        return requests, report

    @property
    def is_idle(self) -> bool:
        return not self._requests and not self._report

    def learn(self, state: BreakerState, until: float, held_until: float) -> None:
        """Applies Redis' state of the breaker and of the hold, of which this is the end by this task's clock."""
        self.epoch += state is not self.breaker.state
        self.breaker.state, self.breaker.until = state, until
        self._update_opened()
        now = self._gate.now()
        if self._held_until > max(now, held_until + _SAME_SECONDS):  # Redis has lost it
            self._report.held_until = self._held_until
            self._gate.has_work(self)
        elif held_until > max(now, self._held_until + _SAME_SECONDS):
            self._keep_hold(held_until)
        else:
            self._held_until = max(self._held_until, held_until)

    def settle(self, requests: list[_Request], admissions: list[Admission]) -> None:
        """Answers as Redis has decided, unless that does not know of a hold yet."""
        wait = self._held_until - self._gate.now()
        for request, admission in zip(requests, admissions, strict=True):
            if request.answer.done():
                continue
            if wait <= 0 or not isinstance(admission, Send):
                request.answer.set_result(admission)
            elif wait > TOKEN_HORIZON_SECONDS:
                request.answer.set_result(self._held())
            else:
                request.answer.set_result(Send(max(wait, admission.wait), admission.probe))

    def decide_locally(self, requests: list[_Request], report: _Report, now: float) -> None:
        """Decides without Redis. The ledger is unavailable, so a message may be delivered twice."""
        for message, cause in report.errors:
            if cause:
                self.breaker.failed(now, probe=False, message=message)
            else:
                self.breaker.recovered(message)
        if self.breaker.state is BreakerState.HALF_OPEN and report.probe:
            if report.probe == "ok":
                self.breaker.succeeded(probe=True)
            else:
                self.breaker.failed(now, probe=True)
        self._report.delivered.extendleft(reversed(report.delivered))
        self._report.held_until = max(self._report.held_until, report.held_until)
        for request in requests:
            if not request.answer.done():
                request.answer.set_result(self._local_admission(now))
        self._update_opened()

    def _local_admission(self, now: float) -> Admission:
        if self.breaker.state is not BreakerState.CLOSED and now < self.breaker.until:
            return Held(Reason.BREAKER_OPEN, self.breaker.until)
        starts = max(now, self._held_until)
        wait = starts - now
        if wait > TOKEN_HORIZON_SECONDS:
            return self._held()
        if self._limit is not None:
            tokens = self._limit.take(starts, 1, TOKEN_HORIZON_SECONDS - wait)
            if not tokens:
                return Held(Reason.RATE_LIMITED, self._limit.next_at(starts))
            wait = tokens[0] - now
        return Send(wait, probe=self.breaker.admit(now) is BreakerState.HALF_OPEN)

    def _held(self) -> Held:
        return Held(Reason.RATE_LIMITED, self._held_until, asked=True)

    def _keep_hold(self, until: float) -> None:
        self._held_until = until
        self.holds += 1
        self.epoch += 1

    def _update_opened(self) -> None:
        if self.breaker.state is BreakerState.CLOSED:
            self.opened.clear()
        else:
            self.opened.set()


class Gate:
    """Batches every output's requests to one Redis. Started and closed on one event loop.

    ``rate_fraction`` is this task's part of each rate limit while Redis, which counts for all tasks, is unavailable.
    ``clock`` replaces Redis' clock in tests.
    """

    def __init__(self, redis_url: str, *, rate_fraction: float = 1.0, clock: Callable[[], float] | None = None) -> None:
        # A batch sent twice would take its tokens twice.
        self._redis = async_redis_client(redis_url, seconds=_ANSWER_SECONDS, repeat=False)
        self._rate_fraction = rate_fraction
        self._clock = clock
        self._dirty: dict[OutputGate, None] = {}
        self._wake = asyncio.Event()
        self._in_round = False
        self._unavailable_until = 0.0
        self._loaded = False
        self.redis_unavailable = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Reports what is left to Redis, unless that is unavailable."""
        if self._task is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2 * _ANSWER_SECONDS):
                    await self.settled()
            await tasks.cancel(self._task)
        await self._redis.aclose()

    async def settled(self) -> None:
        """Returns once everything has been reported to Redis."""
        while self._dirty or self._in_round:
            await asyncio.sleep(0.001)

    def output(self, key: OutputKey, breaker: BreakerPolicy, limit: RateLimitPolicy | None) -> OutputGate:
        return OutputGate(key, breaker, limit, self)

    def fraction_of(self, limit: RateLimitPolicy) -> RateLimitPolicy:
        if self._rate_fraction == 1.0:
            return limit
        # A longer period instead of fewer messages, which would round to none.
        return limit.model_copy(
            update={
                "period_seconds": limit.period_seconds / self._rate_fraction,
                "burst": int(limit.burst * self._rate_fraction),
            }
        )

    def now(self) -> float:
        return self._clock() if self._clock else time.time()

    def has_work(self, output: OutputGate) -> None:
        self._dirty[output] = None
        self._wake.set()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            dirty, self._dirty = list(self._dirty), {}
            self._in_round = True
            began = time.monotonic()
            await self._round(dirty)
            self._in_round = False
            # Requests within some milliseconds share a round trip.
            await asyncio.sleep(max(0.0, _GATHER_SECONDS - (time.monotonic() - began)))
            for output in dirty:
                if not output.is_idle:
                    self.has_work(output)

    async def _round(self, outputs: list[OutputGate]) -> None:
        taken = [(output, *output.take()) for output in outputs]
        if time.monotonic() >= self._unavailable_until:
            try:
                await self._send_batch(taken)
                return
            except Exception as error:
                if not isinstance(error, RedisError | OSError | TimeoutError):
                    log.exception("Redis' answer could not be processed.")  # no request may wait forever
                self._note_unavailable(error)
        now = self.now()
        for output, requests, report in taken:
            output.decide_locally(requests, report, now)

    async def _send_batch(self, taken: list[tuple[OutputGate, list[_Request], _Report]]) -> None:
        if not self._loaded:
            await self._load()
        if self.redis_unavailable:
            await self._report_open_breakers([output for output, _, _ in taken])
        # Whatever time the answer takes, a hold is not counted as longer than it is.
        asked_at = self.now()
        try:
            answers = iter(await self._batch_of(taken).execute())
        except NoScriptError:  # Redis was restarted
            await self._load()
            answers = iter(await self._batch_of(taken).execute())
        for output, requests, report in taken:
            if report:
                state, until, held = next(answers)
                output.learn(BreakerState(state.decode()), float(until), asked_at + float(held or 0))
            if requests:
                _, state, until, held, *admissions = next(answers)
                output.learn(BreakerState(state.decode()), float(until), asked_at + float(held or 0))
                output.settle(requests, [_admission(admission) for admission in admissions])
        if self.redis_unavailable:
            log.warning("Redis is available: breakers, rate limits and the delivered ledger are shared again.")
            self.redis_unavailable = False

    def _batch_of(self, taken: list[tuple[OutputGate, list[_Request], _Report]]) -> Any:
        batch = self._redis.pipeline(transaction=False)
        for output, requests, report in taken:
            if report:
                self._add_report(batch, output, report)
            if requests:
                self._add_requests(batch, output, requests)
        return batch

    async def _load(self) -> None:
        for name in ("admit", "report", "set_breaker"):
            await self._redis.script_load(script(name).text)
        self._loaded = True

    async def _report_open_breakers(self, outputs: list[OutputGate]) -> None:
        now = self.now()
        for output in outputs:
            left = output.breaker.until - now
            if output.breaker.state is BreakerState.OPEN and left > 0:
                await self._redis.eval(  # type: ignore[no-untyped-call]
                    script("set_breaker").text,
                    2,
                    output.key.breaker,
                    EVENTS,
                    self._now(),
                    "open",
                    left,
                    "Opened while Redis was unavailable.",
                    output.key.name(),
                )

    def _add_report(self, batch: Any, output: OutputGate, report: _Report) -> None:
        policy = output.breaker.policy
        delivered = b"".join([message_id for message_id, _ in report.delivered])
        positions = ",".join([position for _, position in report.delivered])
        _evaluate(
            batch,
            script("report"),
            [output.key.breaker, output.key.errors, *output.key.ledger, EVENTS, LEDGER_HORIZON, output.key.hold],
            [self._now(), policy.errors, policy.window_seconds, policy.open_seconds],
            [_LEDGER_MOST, _LEDGER_KEPT_SECONDS, output.key.name(), report.probe],
            [max(0.0, report.held_until - self.now()), delivered, positions],
            [f"{message}|{cause}" for message, cause in report.errors],
        )

    def _add_requests(self, batch: Any, output: OutputGate, requests: list[_Request]) -> None:
        limit = output.limit_policy
        key = output.key
        _evaluate(
            batch,
            script("admit"),
            [key.breaker, key.limit, *key.ledger, key.backlog, EVENTS, key.hold],
            [self._now(), PROBE_SECONDS, limit.interval if limit else 0, limit.burst if limit else 0],
            [TOKEN_HORIZON_SECONDS, key.name()],
            ["".join([_LETTERS[request.kind] for request in requests])],
            [b"".join([request.message_id for request in requests])],
        )

    def _now(self) -> float | str:
        return self._clock() if self._clock else ""

    def _note_unavailable(self, error: Exception) -> None:
        self._unavailable_until = time.monotonic() + _UNAVAILABLE_SECONDS
        self._loaded = False
        if not self.redis_unavailable:
            self.redis_unavailable = True
            log.warning("Redis is unavailable (%s): continuing with this task's own breakers and rate limits.", error)


def _as_bytes(message_id: str) -> bytes:
    """16 bytes: those of a UUID, or a hash of any other id."""
    try:
        known = bytes.fromhex(message_id.replace("-", ""))
    except ValueError:
        known = b""
    return known if len(known) == 16 else hashlib.blake2b(message_id.encode(), digest_size=16).digest()


def _evaluate(batch: Any, called: Script, keys: list[str], *arguments: list[Any]) -> None:
    batch.evalsha(called.sha, len(keys), *keys, *(argument for part in arguments for argument in part))


def _admission(answer: list[bytes] | int) -> Admission:
    if answer == 1:  # nearly always
        return _SEND_NOW
    match answer:
        case [b"send", wait, probe]:
            return Send(float(wait), probe=bool(probe))
        case [b"repeat", position]:
            return Repeat(position.decode())
        case [b"open", until, cause]:
            return Held(Reason.BREAKER_OPEN, float(until), cause=cause.decode(errors="replace"))
        case [b"held", until]:
            return Held(Reason.RATE_LIMITED, float(until), asked=True)
        case [b"limited", due]:
            return Held(Reason.RATE_LIMITED, float(due))
    raise ValueError(f"Unexpected answer of admit.lua: {answer!r}")
