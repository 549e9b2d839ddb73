"""A receiver that asks to be left alone: how long, and what a task does of it without Redis."""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.connectors.http.batch import outcomes_of_lines
from backend.connectors.parts.http_answers import refused
from backend.delivery import attempts
from backend.domain.breaker import BreakerPolicy
from backend.domain.capabilities import DeliveryError
from backend.domain.message import new_message_id
from backend.domain.rate_limit import RateLimit, RateLimitPolicy
from backend.domain.reasons import Reason
from backend.domain.retry import LONGEST_HOLD_SECONDS, RetryPolicy, held_text
from backend.network.http_client import HttpClient, Response
from backend.resilience.gate import TOKEN_HORIZON_SECONDS, Gate, Held, OutputGate, Send
from backend.resilience.retries import RetriesExhaustedError, with_retries
from backend.resilience.scripts import OutputKey

NO_REDIS = "redis://127.0.0.1:1/0"
POLICY = BreakerPolicy(errors=3, window_seconds=10, open_seconds=100)


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def error(retry_after: float | None, *, retryable: bool = True) -> DeliveryError:
    return DeliveryError("http_429", "Too many.", retryable=retryable, retry_after=retry_after)


@given(st.one_of(st.none(), st.integers(), st.floats()))
def test_neighbours_9_what_a_receiver_asks_for_is_bounded_in_one_place(asked: float | None) -> None:
    held = error(asked).retry_after
    if asked is None or math.isnan(asked) or asked <= 0:
        assert held is None
    else:
        assert held == min(asked, 6 * 3600)
    assert error(asked).without(["secret"]).retry_after == held


async def exhausted(policy: RetryPolicy, *errors: DeliveryError) -> tuple[RetriesExhaustedError, float]:
    failures = iter(errors)

    async def attempt(_number: int) -> None:
        raise next(failures)

    with pytest.raises(RetriesExhaustedError) as failed:
        await with_retries(policy, attempt, opened=asyncio.Event(), on_retry=lambda: None)
    return failed.value, time.time()


async def test_neighbours_9_the_last_attempt_is_due_when_the_receiver_says() -> None:
    failed, now = await exhausted(RetryPolicy(attempts=1), error(600))
    assert failed.due == pytest.approx(now + 600, abs=5)
    assert not failed.retryable  # its due time says all
    failed, now = await exhausted(RetryPolicy(attempts=2, initial_seconds=0.001), error(None), error(20))
    assert failed.due == pytest.approx(now + 20, abs=5)
    failed, now = await exhausted(RetryPolicy(attempts=4), error(600))
    assert failed.due == pytest.approx(now + 600, abs=5)
    failed, _ = await exhausted(RetryPolicy(attempts=1), error(None))
    assert (failed.due, failed.retryable) == (None, True)
    failed, _ = await exhausted(RetryPolicy(attempts=1), error(600, retryable=False))
    assert (failed.due, failed.retryable) == (None, False)


async def test_neighbours_9_the_next_attempt_waits_as_the_receiver_says() -> None:
    began = time.monotonic()
    await exhausted(RetryPolicy(attempts=2, initial_seconds=0.001), error(0.3), error(None))
    assert time.monotonic() - began >= 0.3


@asynccontextmanager
async def answering(header: str) -> AsyncIterator[str]:
    """A receiver whose answers have this ``Retry-After``."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 503 Busy\r\nRetry-After: {header}\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}/"
    finally:
        server.close()
        await server.wait_closed()


async def asked_by(header: str) -> DeliveryError:
    client = HttpClient()
    try:
        async with answering(header) as url:
            return refused(await client.request("GET", url, []))
    finally:
        await client.close()


def date_in(seconds: float) -> str:
    return format_datetime(datetime.fromtimestamp(time.time() + seconds, UTC), usegmt=True)


async def test_neighbours_9_seconds_and_dates_are_understood_and_nonsense_is_ignored() -> None:
    assert (await asked_by("3")).retry_after == 3
    assert (await asked_by(date_in(600))).retry_after == pytest.approx(600, abs=5)
    for past in ("0", "-5", "soon", "", date_in(-600)):
        assert (await asked_by(past)).retry_after is None, past


async def test_neighbours_9_the_bound_is_said_where_it_applies() -> None:
    for long in ("86400", date_in(86_400)):
        failed = await asked_by(long)
        assert failed.retry_after == LONGEST_HOLD_SECONDS
        assert "for 6 hours or more (Retry-After); Headrace waits 6 hours at most." in str(failed)
    assert "Retry-After" not in str(await asked_by("3600"))


def test_neighbours_9_a_line_of_a_batch_is_left_alone_for_as_long_as_the_batch() -> None:
    answer = Response(207, b'[{"status": 429}, {"status": 200}, {"status": 503}]', 3.0)
    busy, _, away = outcomes_of_lines(answer, 3)
    assert isinstance(busy, DeliveryError)
    assert isinstance(away, DeliveryError)
    assert busy.retry_after == away.retry_after == 3
    with pytest.raises(DeliveryError) as failed:
        outcomes_of_lines(Response(207, b"[]", 3.0), 3)
    assert failed.value.retry_after == 3


def test_neighbours_9_a_message_that_was_kept_back_says_who_wanted_it() -> None:
    due = datetime(2026, 1, 2, 12, 34, tzinfo=UTC).timestamp()
    delivery = type("AnyDelivery", (), {"attempts": []})
    outcome = attempts.not_attempted(Held(Reason.RATE_LIMITED, due, asked=True), delivery)  # type: ignore[arg-type]
    expected = "The receiver asked to be left alone until 2026-01-02 12:34:00 UTC; the message waits until then."
    assert (outcome.error, outcome.due, outcome.reason) == (expected, due, "rate_limited")  # type: ignore[union-attr]
    assert held_text(due) == expected
    outcome = attempts.not_attempted(Held(Reason.RATE_LIMITED, due), delivery)  # type: ignore[arg-type]
    assert "rate limit" in outcome.error  # type: ignore[union-attr]


@pytest.mark.parametrize("cause", ["The receiver answered 503.", ""])
def test_a_message_that_a_breaker_held_back_says_what_opened_it(cause: str) -> None:
    delivery = type("AnyDelivery", (), {"attempts": []})
    held = Held(Reason.BREAKER_OPEN, 5.0, cause=cause)
    outcome = attempts.not_attempted(held, delivery)  # type: ignore[arg-type]
    assert outcome.error.startswith("The circuit breaker of this output is open;")  # type: ignore[union-attr]
    assert outcome.error.endswith(f"What opened it: {cause}" if cause else "once it has closed.")  # type: ignore[union-attr]


# -- without Redis -------------------------------------------------------------


@asynccontextmanager
async def output_without_redis(clock: Clock, limit: RateLimitPolicy | None = None) -> AsyncIterator[OutputGate]:
    gate = Gate(NO_REDIS, clock=clock)
    gate.start()
    output = gate.output(OutputKey("p", "out"), POLICY, limit)
    yield output
    output.take()  # what is to be reported, for which the gate would wait
    await gate.close()


Step = tuple[str, float]
STEPS = st.lists(st.tuples(st.sampled_from(["admit", "admit", "ask", "pass"]), st.floats(0, 20)), max_size=20)


@settings(max_examples=40, deadline=None)
@given(
    steps=STEPS,
    limit=st.none() | st.builds(RateLimitPolicy, messages=st.integers(1, 9), period_seconds=st.floats(1, 9)),
)
def test_neighbours_9_without_redis_a_task_holds_by_its_own_memory(
    steps: list[Step], limit: RateLimitPolicy | None
) -> None:
    async def run() -> None:
        clock = Clock()
        tokens = RateLimit(limit) if limit else None
        until = 0.0
        async with output_without_redis(clock, limit) as output:
            for step, seconds in steps:
                match step:
                    case "pass":
                        clock.now += seconds
                    case "ask":
                        until = max(until, clock.now + seconds)
                        output.hold(seconds)
                    case "admit":
                        admission = await output.admit("retry", "")
                        start = max(clock.now, until)
                        left = start - clock.now
                        if left > TOKEN_HORIZON_SECONDS:
                            assert admission == Held(Reason.RATE_LIMITED, until, asked=True)
                            continue
                        taken = tokens.take(start, 1, TOKEN_HORIZON_SECONDS - left) if tokens else [start]
                        if taken:
                            assert admission == Send(pytest.approx(taken[0] - clock.now))
                        else:
                            assert isinstance(admission, Held)
                            assert not admission.asked
                            assert admission.due >= until

    asyncio.run(run())


async def test_neighbours_9_a_hold_counts_for_what_was_admitted_before_it() -> None:
    clock = Clock()
    async with output_without_redis(clock) as output:
        epoch, holds = output.epoch, output.holds
        output.hold(0.3)
        assert (output.epoch, output.holds) != (epoch, holds)
        # It waits for the end of a short hold, which a longer one replaces in the meantime.
        waiting = asyncio.ensure_future(output.turn("first", new_message_id()))
        await asyncio.sleep(0.1)
        output.hold(600)
        assert await waiting == Held(Reason.RATE_LIMITED, clock.now + 600, asked=True)
        holds = output.holds
        output.hold(5)  # ends before
        assert output.holds == holds
        clock.now += 601
        assert await output.turn("first", new_message_id()) == Send()


async def test_neighbours_9_a_hold_is_neither_an_error_nor_an_open_breaker() -> None:
    clock = Clock()
    async with output_without_redis(clock) as output:
        for _ in range(5):
            output.hold(10)
        assert isinstance(await output.admit("first", new_message_id()), Held)
        assert not output.opened.is_set()
        clock.now += 10
        assert await output.admit("first", new_message_id()) == Send()
