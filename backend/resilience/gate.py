"""Between the engine and Redis: may this try be made, and what came of it.

All questions of an output that come while one round trip is under way go into the next: Redis is
asked once per batch. When Redis is away, each output goes on with its own breaker and its share
of the rate limit, and tells Redis what it knows once it is back.
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
from backend.network.redis_client import async_redis_client
from backend.resilience.scripts import EVENTS, OutputKey, Script, script

log = logging.getLogger(__name__)

TOKEN_HORIZON_SECONDS = 1.0
"""A message waits this long for its token at most; it is a dead letter with a due time otherwise."""

LEDGER_SECONDS = 300.0
"""Deliveries of at least this long are remembered: much longer than a killed Spark query repeats."""
_LEDGER_KEPT_SECONDS = 86400
_ANSWER_SECONDS = 1.0
_AWAY_SECONDS = 1.0
_BATCH = 500
_GATHER_SECONDS = 0.002
_MARKS_KEPT = 100_000

Kind = Literal["first", "redelivery", "retry"]


@dataclass(frozen=True, slots=True)
class Send:
    """The try may be made, ``wait`` seconds from now. As a ``probe``, its outcome decides about the breaker."""

    wait: float = 0.0
    probe: bool = False


@dataclass(frozen=True, slots=True)
class Repeat:
    """The output has this message: it was delivered when it was read at ``position``."""

    position: str


@dataclass(frozen=True, slots=True)
class Held:
    """Not now; worth trying again from ``due`` on (Unix time)."""

    reason: Literal[Reason.BREAKER_OPEN, Reason.RATE_LIMITED]
    due: float


Admission = Send | Repeat | Held


@dataclass(slots=True)
class _Question:
    kind: Kind
    message_id: bytes
    answer: asyncio.Future[Admission]


@dataclass
class _News:
    """What Redis has not been told yet."""

    errors: list[str] = field(default_factory=list)
    probe: Literal["", "ok", "failed"] = ""
    delivered: deque[tuple[bytes, str]] = field(default_factory=lambda: deque(maxlen=_MARKS_KEPT))

    def __bool__(self) -> bool:
        return bool(self.errors or self.probe or self.delivered)


class OutputGate:
    """One output's face of the gate."""

    def __init__(self, key: OutputKey, breaker: BreakerPolicy, limit: RateLimitPolicy | None, gate: "Gate") -> None:
        self.key = key
        self.limit_policy = limit
        self.breaker = Breaker(breaker)
        """The local view; Redis' own while that answers."""
        self.opened = asyncio.Event()
        """Set while the breaker is not closed: no retry is worth waiting for."""
        self.epoch = 0
        """Grows with whatever may open the breaker: an admission from before should be asked for again."""
        self._gate = gate
        self._limit = self._local_limit()
        self._questions: list[_Question] = []
        self._news = _News()

    def configure(self, breaker: BreakerPolicy, limit: RateLimitPolicy | None) -> None:
        """With these policies from now on; the breaker's state and the tokens that were taken stay."""
        self.breaker.policy = breaker
        if limit != self.limit_policy:
            self.limit_policy = limit
            self._limit = self._local_limit()

    def _local_limit(self) -> RateLimit | None:
        return RateLimit(self._gate.share_of(self.limit_policy)) if self.limit_policy else None

    async def admit(self, kind: Kind, message_id: str) -> Admission:
        """Whether a try may be made now. The ledger is asked for all but retries."""
        answer: asyncio.Future[Admission] = asyncio.get_running_loop().create_future()
        self._questions.append(_Question(kind, _as_bytes(message_id) if kind != "retry" else b"", answer))
        self._gate.has_work(self)
        return await answer

    def delivered(self, message_id: str, position: str, *, probe: bool) -> None:
        self._news.delivered.append((_as_bytes(message_id), position))
        if probe:
            self._news.probe = "ok"
        self._gate.has_work(self)

    def succeeded(self, *, probe: bool) -> None:
        """Something that no ledger is kept of: only a probe's success is news."""
        if probe:
            self._news.probe = "ok"
            self._gate.has_work(self)

    def failed(self, cause: str, *, probe: bool) -> None:
        self.epoch += 1
        self._news.errors.append(cause)
        if probe:
            self._news.probe = "failed"
        self._gate.has_work(self)

    # -- called by the gate ---------------------------------------------------

    def take(self) -> tuple[list[_Question], _News]:
        questions, self._questions = self._questions[:_BATCH], self._questions[_BATCH:]
        news, self._news = self._news, _News()
        return questions, news

    @property
    def is_idle(self) -> bool:
        return not self._questions and not self._news

    def learn(self, state: BreakerState, until: float) -> None:
        """Redis' word on the breaker."""
        self.epoch += state is not self.breaker.state
        self.breaker.state, self.breaker.until = state, until
        self._show()

    def judge(self, questions: list[_Question], news: _News, now: float) -> None:
        """Answers without Redis. The ledger cannot be asked, so a repeat may be sent again."""
        for _ in news.errors:
            self.breaker.failed(now, probe=news.probe == "failed")
        if news.probe == "ok":
            self.breaker.succeeded(probe=True)
        self._news.delivered.extendleft(reversed(news.delivered))
        for question in questions:
            if not question.answer.done():
                question.answer.set_result(self._local_admission(now))
        self._show()

    def _local_admission(self, now: float) -> Admission:
        if self.breaker.state is not BreakerState.CLOSED and now < self.breaker.until:
            return Held(Reason.BREAKER_OPEN, self.breaker.until)
        wait = 0.0
        if self._limit is not None:
            tokens = self._limit.take(now, 1, TOKEN_HORIZON_SECONDS)
            if not tokens:
                return Held(Reason.RATE_LIMITED, self._limit.next_at(now))
            wait = tokens[0] - now
        return Send(wait, probe=self.breaker.admit(now) is BreakerState.HALF_OPEN)

    def _show(self) -> None:
        if self.breaker.state is BreakerState.CLOSED:
            self.opened.clear()
        else:
            self.opened.set()


class Gate:
    """Every output's questions to one Redis. Started and closed on one event loop.

    ``share`` is this task's part of a rate limit while Redis, which counts for all, is away.
    ``clock`` replaces Redis' own time in tests.
    """

    def __init__(self, redis_url: str, *, share: float = 1.0, clock: Callable[[], float] | None = None) -> None:
        # A batch sent twice would take its tokens twice.
        self._redis = async_redis_client(redis_url, seconds=_ANSWER_SECONDS, repeat=False)
        self._share = share
        self._clock = clock
        self._dirty: dict[OutputGate, None] = {}
        self._wake = asyncio.Event()
        self._asking = False
        self._away_until = 0.0
        self._loaded = False
        self.redis_away = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Tells Redis what is left, unless it is away."""
        if self._task is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2 * _ANSWER_SECONDS):
                    await self.settled()
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._redis.aclose()

    async def settled(self) -> None:
        """Returns once Redis has been told everything."""
        while self._dirty or self._asking:
            await asyncio.sleep(0.001)

    def output(self, key: OutputKey, breaker: BreakerPolicy, limit: RateLimitPolicy | None) -> OutputGate:
        return OutputGate(key, breaker, limit, self)

    def share_of(self, limit: RateLimitPolicy) -> RateLimitPolicy:
        if self._share == 1.0:
            return limit
        # A longer period instead of fewer messages, which would round to none.
        return limit.model_copy(
            update={"period_seconds": limit.period_seconds / self._share, "burst": int(limit.burst * self._share)}
        )

    def has_work(self, output: OutputGate) -> None:
        self._dirty[output] = None
        self._wake.set()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            dirty, self._dirty = list(self._dirty), {}
            self._asking = True
            began = time.monotonic()
            await self._round(dirty)
            self._asking = False
            # What comes within some milliseconds shares a question.
            await asyncio.sleep(max(0.0, _GATHER_SECONDS - (time.monotonic() - began)))
            for output in dirty:
                if not output.is_idle:
                    self.has_work(output)

    async def _round(self, outputs: list[OutputGate]) -> None:
        taken = [(output, *output.take()) for output in outputs]
        if time.monotonic() >= self._away_until:
            try:
                await self._ask(taken)
                return
            except Exception as error:
                if not isinstance(error, RedisError | OSError | TimeoutError):
                    log.exception("Redis' answer was not understood.")  # whatever happens, nobody may wait forever
                self._note_away(error)
        now = self._clock() if self._clock else time.time()
        for output, questions, news in taken:
            output.judge(questions, news, now)

    async def _ask(self, taken: list[tuple[OutputGate, list[_Question], _News]]) -> None:
        if not self._loaded:
            await self._load()
        if self.redis_away:
            await self._tell_open_breakers([output for output, _, _ in taken])
        try:
            answers = iter(await self._batch_of(taken).execute())
        except NoScriptError:  # Redis was started anew
            await self._load()
            answers = iter(await self._batch_of(taken).execute())
        for output, questions, news in taken:
            if news:
                state, until = next(answers)
                output.learn(BreakerState(state.decode()), float(until))
            if questions:
                _, state, until, *admissions = next(answers)
                output.learn(BreakerState(state.decode()), float(until))
                for question, admission in zip(questions, admissions, strict=True):
                    if not question.answer.done():
                        question.answer.set_result(_admission(admission))
        if self.redis_away:
            log.warning("Redis is back: breakers, rate limits and the delivered ledger are shared again.")
            self.redis_away = False

    def _batch_of(self, taken: list[tuple[OutputGate, list[_Question], _News]]) -> Any:
        batch = self._redis.pipeline(transaction=False)
        for output, questions, news in taken:
            if news:
                self._report(batch, output, news)
            if questions:
                self._admit(batch, output, questions)
        return batch

    async def _load(self) -> None:
        for name in ("admit", "report", "set_breaker"):
            await self._redis.script_load(script(name).text)
        self._loaded = True

    async def _tell_open_breakers(self, outputs: list[OutputGate]) -> None:
        now = self._clock() if self._clock else time.time()
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
                    "Opened while Redis was away.",
                    output.key.name(),
                )

    def _report(self, batch: Any, output: OutputGate, news: _News) -> None:
        policy = output.breaker.policy
        marks = [part for mark in news.delivered for part in mark]
        _evaluate(
            batch,
            script("report"),
            [output.key.breaker, output.key.errors, *output.key.ledger, EVENTS],
            [self._now(), policy.errors, policy.window_seconds, policy.open_seconds],
            [LEDGER_SECONDS, _LEDGER_KEPT_SECONDS, output.key.name(), news.probe],
            [len(news.errors), *news.errors, *marks],
        )

    def _admit(self, batch: Any, output: OutputGate, questions: list[_Question]) -> None:
        limit = output.limit_policy
        key = output.key
        _evaluate(
            batch,
            script("admit"),
            [key.breaker, key.limit, *key.ledger, key.backlog, EVENTS],
            [self._now(), PROBE_SECONDS, limit.interval if limit else 0, limit.burst if limit else 0],
            [TOKEN_HORIZON_SECONDS, key.name()],
            [part for question in questions for part in (question.kind, question.message_id)],
        )

    def _now(self) -> float | str:
        return self._clock() if self._clock else ""

    def _note_away(self, error: Exception) -> None:
        self._away_until = time.monotonic() + _AWAY_SECONDS
        self._loaded = False
        if not self.redis_away:
            self.redis_away = True
            log.warning("Redis is away (%s): going on with this task's own breakers and rate limits.", error)


def _as_bytes(message_id: str) -> bytes:
    """16 bytes: those of a UUID, or a hash of what is none."""
    try:
        return bytes.fromhex(message_id.replace("-", ""))
    except ValueError:
        return hashlib.blake2b(message_id.encode(), digest_size=16).digest()


def _evaluate(batch: Any, called: Script, keys: list[str], *arguments: list[Any]) -> None:
    batch.evalsha(called.sha, len(keys), *keys, *(argument for part in arguments for argument in part))


def _admission(answer: list[bytes]) -> Admission:
    match answer:
        case [b"send", wait, probe]:
            return Send(float(wait), probe=bool(probe))
        case [b"repeat", position]:
            return Repeat(position.decode())
        case [b"open", until]:
            return Held(Reason.BREAKER_OPEN, float(until))
        case [b"limited", due]:
            return Held(Reason.RATE_LIMITED, float(due))
    raise ValueError(f"Not an answer of admit.lua: {answer!r}")
