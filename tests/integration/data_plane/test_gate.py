"""Breaker, rate limit and ledger in a real Redis, against the plain models of ``backend.domain``."""

import asyncio
import signal
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis.asyncio as redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backend.domain import json
from backend.domain.breaker import PROBE_SECONDS, Breaker, BreakerPolicy, BreakerState
from backend.domain.message import new_message_id
from backend.domain.rate_limit import RateLimit, RateLimitPolicy
from backend.domain.reasons import Reason
from backend.resilience import gate as gate_module
from backend.resilience.gate import TOKEN_HORIZON_SECONDS, Gate, Held, OutputGate, Repeat, Send
from backend.resilience.scripts import EVENTS, LEDGER_HORIZON, OutputKey, script
from tests.infra import REDIS_URL, Server
from tests.waiting import LIMIT_SECONDS, wait_until_async

POLICY = BreakerPolicy(errors=3, window_seconds=10, open_seconds=100)


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def gate(redis_server: Server, clock: Clock) -> AsyncIterator[Gate]:
    started = Gate(REDIS_URL, clock=clock)
    started.start()
    yield started
    await started.close()


@pytest.fixture
def output(gate: Gate) -> Callable[..., OutputGate]:
    def make(limit: RateLimitPolicy | None = None, key: OutputKey | None = None) -> OutputGate:
        return gate.output(key or OutputKey(str(uuid.uuid4()), "out"), POLICY, limit)

    return make


@pytest.fixture
async def horizon(redis_server: Server) -> AsyncIterator[Callable[[float], Any]]:
    """Moves the ledger's horizon."""
    client = redis.from_url(REDIS_URL)

    async def move(to: float) -> None:
        await client.set(LEDGER_HORIZON, to)

    yield move
    await client.delete(LEDGER_HORIZON)
    await client.aclose()


async def admit(output: OutputGate, kind: Any = "first") -> Any:
    return await output.admit(kind, new_message_id())


async def test_a_delivered_message_is_known_with_where_it_was_read(output: Callable[..., OutputGate]) -> None:
    out = output()
    message = new_message_id()
    assert await out.admit("first", message) == Send()
    out.delivered(message, "1:7", probe=False)
    assert await out.admit("first", message) == Repeat("1:7")
    assert await out.admit("retry", message) == Send()
    assert isinstance(await output().admit("first", message), Send)  # another output has not had it


async def test_ids_of_any_form_are_told_apart_in_one_request(output: Callable[..., OutputGate]) -> None:
    out = output()
    ids = [new_message_id(), "", "7", "a producer's own id " * 10, "abcd", "pedido-é", new_message_id()]
    for number, message in enumerate(ids):
        out.delivered(message, f"0:{number}", probe=False)
    answers = await asyncio.gather(*(out.admit("first", message) for message in [*ids, new_message_id()]))
    assert answers == [*(Repeat(f"0:{number}") for number in range(len(ids))), Send()]


async def test_a_delivery_is_remembered_until_no_copy_can_arrive_however_long_that_takes(
    output: Callable[..., OutputGate], clock: Clock, horizon: Callable[[float], Any]
) -> None:
    out = output()
    first = new_message_id()
    out.delivered(first, "0:1", probe=False)
    for _ in range(5):  # the copy waits behind a backlog for days, while others are delivered
        await admit(out)
        clock.now += 86_400
        out.delivered(new_message_id(), "0:2", probe=False)
    assert await out.admit("first", first) == Repeat("0:1")
    for _ in range(2):
        await horizon(clock.now)
        clock.now += 1
        out.delivered(new_message_id(), "0:2", probe=False)
        await admit(out)
    assert await out.admit("first", first) == Send()


async def test_the_ledger_of_an_output_is_bounded(
    output: Callable[..., OutputGate], monkeypatch: pytest.MonkeyPatch, horizon: Callable[[float], Any]
) -> None:
    monkeypatch.setattr(gate_module, "_LEDGER_MOST", 100)
    await horizon(0)
    out = output()
    for _ in range(50):
        for _ in range(20):
            out.delivered(new_message_id(), "0:2", probe=False)
        await admit(out)
    async with redis.from_url(REDIS_URL) as client:
        sizes = [await client.hlen(key) for key in out.key.ledger]
    assert 100 < sum(sizes) < 300


async def test_errors_open_it_for_all_and_every_turn_is_an_event(
    output: Callable[..., OutputGate], clock: Clock
) -> None:
    key = OutputKey(str(uuid.uuid4()), "erp")
    one, other = output(key=key), output(key=key)
    for number in range(3):
        one.failed(f"error {number}", probe=False)
    assert await admit(one) == Held("breaker_open", clock.now + 100, cause="error 2")
    assert await admit(other) == Held("breaker_open", clock.now + 100, cause="error 2")
    assert one.opened.is_set()
    clock.now += 100
    assert await admit(other) == Send(probe=True)
    assert isinstance(await admit(one), Held)
    other.delivered(new_message_id(), "0:0", probe=True)
    assert await admit(other) == Send()
    client = redis.from_url(REDIS_URL)
    events = [
        fields for _, fields in await client.xrange(EVENTS) if json.loads(fields[b"output"]) == [key.pipeline_id, "erp"]
    ]
    await client.aclose()
    assert [event[b"state"] for event in events] == [b"open", b"half_open", b"closed"]
    assert events[0][b"cause"] == b"error 2"


async def test_what_redis_keeps_of_an_output_expires_without_use(
    gate: Gate, output: Callable[..., OutputGate], clock: Clock
) -> None:
    out = output(RateLimitPolicy(messages=10, period_seconds=1))
    client = redis.from_url(REDIS_URL)

    async def least_and_most() -> tuple[int, int]:
        keys = [key async for key in client.scan_iter(f"headrace:*:{out.key.pipeline_id}/*")]
        assert out.key.breaker.encode() in keys
        times = [await client.ttl(key) for key in keys]
        return min(times), max(times)

    month = 30 * 86400
    out.failed("One error.", probe=False)
    out.delivered(new_message_id(), "0:1", probe=False)
    assert isinstance(await admit(out), Send)
    least, most = await least_and_most()
    assert 0 <= least <= most <= month
    for _ in range(2):
        out.failed("Another error.", probe=False)
    assert isinstance(await admit(out), Held)
    assert month + 90 < await client.ttl(out.key.breaker) <= month + 100  # longer than it is open
    clock.now += 100
    await client.persist(out.key.breaker)
    assert await admit(out) == Send(probe=True)
    assert month < await client.ttl(out.key.breaker) <= month + PROBE_SECONDS
    await client.persist(out.key.breaker)
    out.delivered(new_message_id(), "0:2", probe=True)
    assert isinstance(await admit(out), Send)
    assert 0 < await client.ttl(out.key.breaker) <= month
    arguments = ["", "open", 2 * month, "Opened by an operator.", out.key.name()]
    await client.eval(script("set_breaker").text, 2, out.key.breaker, EVENTS, *arguments)
    assert 3 * month - 10 < await client.ttl(out.key.breaker) <= 3 * month
    await client.aclose()


Step = tuple[str, float]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["admit", "fail", "fail", "pass", "ok", "recover"]), st.floats(0, 40)), max_size=40
    )
)
def test_neighbours_7_the_breaker_agrees_with_the_model(redis_server: Server, steps: list[Step]) -> None:
    async def run() -> None:
        clock = Clock()
        gate = Gate(REDIS_URL, clock=clock)
        gate.start()
        out = gate.output(OutputKey(str(uuid.uuid4()), "out"), POLICY, None)
        model = Breaker(POLICY)
        probing = False
        failed: list[str] = []
        for step, seconds in steps:
            match step:
                case "pass":
                    clock.now += round(seconds, 3)
                case "admit":
                    expected = model.admit(clock.now)
                    admission = await admit(out, "retry")
                    assert isinstance(admission, Send) == (expected is not BreakerState.OPEN)
                    if isinstance(admission, Send):
                        assert admission.probe == (expected is BreakerState.HALF_OPEN)
                        probing |= admission.probe
                case "fail":
                    failed.append(uuid.uuid4().hex)
                    model.failed(clock.now, probe=probing, message=failed[-1])
                    out.failed("down", failed[-1], probe=probing)
                    out.failed("down", failed[-1], probe=False, again=True)
                    await gate.settled()
                    probing = False
                case "recover" if failed:
                    recovered = failed.pop(int(seconds) % len(failed))
                    model.recovered(recovered)
                    out.answered(recovered, probe=False, again=True)
                    await gate.settled()
                case "ok":
                    model.succeeded(probe=probing)
                    out.delivered(new_message_id(), "0:0", probe=probing)
                    await gate.settled()
                    probing = False
        await gate.close()

    asyncio.run(run())


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    policy=st.builds(
        RateLimitPolicy, messages=st.integers(1, 30), period_seconds=st.floats(0.5, 20), burst=st.integers(0, 5)
    ),
    rounds=st.lists(st.tuples(st.floats(0, 5), st.integers(1, 30)), min_size=1, max_size=15),
)
def test_the_rate_limit_agrees_with_the_model(
    redis_server: Server, policy: RateLimitPolicy, rounds: list[tuple[float, int]]
) -> None:
    async def run() -> None:
        clock = Clock()
        gate = Gate(REDIS_URL, clock=clock)
        gate.start()
        out = gate.output(OutputKey(str(uuid.uuid4()), "out"), POLICY, policy)
        model = RateLimit(policy)
        client = redis.from_url(REDIS_URL)
        for pause, count in rounds:
            clock.now += round(pause, 3)
            # As redelivery computes it: the model, initialised from the value in Redis.
            stored = RateLimit(policy, full_at=float(await client.get(out.key.limit) or 0))
            free = len(stored.take(clock.now, count, TOKEN_HORIZON_SECONDS))
            expected = [time - clock.now for time in model.take(clock.now, count, TOKEN_HORIZON_SECONDS)]
            answers = await asyncio.gather(*(admit(out, "retry") for _ in range(count)))
            waits = [answer.wait for answer in answers if isinstance(answer, Send)]
            if any(abs(at - TOKEN_HORIZON_SECONDS) < 1e-3 for at in (*expected, model.next_at(clock.now) - clock.now)):
                break  # Redis has rounded times, so that this token may be beyond the horizon for one of them alone
            assert waits == pytest.approx(expected, abs=1e-3)
            assert free == len(waits)
            due = pytest.approx(model.next_at(clock.now), abs=1e-2)
            assert all(answer == Held("rate_limited", due) for answer in answers if isinstance(answer, Held))
        await client.aclose()
        await gate.close()

    asyncio.run(run())


async def test_what_waits_longest_goes_first(output: Callable[..., OutputGate]) -> None:
    out = output(RateLimitPolicy(messages=10, period_seconds=1))
    client = redis.from_url(REDIS_URL)
    await client.set(out.key.backlog, 1, ex=5)
    assert isinstance(await admit(out), Held)
    assert isinstance(await admit(out, "redelivery"), Send)
    await client.delete(out.key.backlog)
    await client.aclose()
    assert isinstance(await admit(out), Send)


async def test_without_redis_each_output_goes_on_alone_and_tells_later(redis_server: Server, clock: Clock) -> None:
    gate = Gate(REDIS_URL, clock=clock, rate_fraction=0.5)
    gate.start()
    key = OutputKey(str(uuid.uuid4()), "out")
    out = gate.output(key, POLICY, RateLimitPolicy(messages=10, period_seconds=10, burst=2))
    assert isinstance(await admit(out), Send)
    message = new_message_id()
    redis_server.stop(signal.SIGKILL)
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            answers = [await admit(out, "retry") for _ in range(4)]
        assert [type(answer) for answer in answers] == [Send, Send, Held, Held]  # half of the burst, and one
        assert gate.redis_unavailable
        clock.now += 100
        for _ in range(3):
            out.failed("down", probe=False)
        assert isinstance(await admit(out), Held)
        out.delivered(message, "0:9", probe=False)
    finally:
        redis_server.start()
    other = Gate(REDIS_URL, clock=clock)
    other.start()

    async def redis_is_back() -> bool:
        assert isinstance(await admit(out), Held)
        return not gate.redis_unavailable

    await wait_until_async(redis_is_back)
    shared = other.output(key, POLICY, None)
    assert await shared.admit("first", message) == Repeat("0:9")
    until = pytest.approx(clock.now + 100)
    assert await admit(shared) == Held("breaker_open", until, cause="Opened while Redis was unavailable.")
    await gate.close()
    await other.close()


# -- holds: a receiver asks to be left alone ------------------------------------


def held(until: float) -> Held:
    """By Redis' clock, which is this test's."""
    return Held(Reason.RATE_LIMITED, pytest.approx(until, abs=0.01), asked=True)


@asynccontextmanager
async def gates(clock: Clock, count: int = 2) -> AsyncIterator[list[Gate]]:
    """Those of so many lane tasks."""
    started = [Gate(REDIS_URL, clock=clock) for _ in range(count)]
    for gate in started:
        gate.start()
    yield started
    for gate in started:
        await gate.close()


async def test_neighbours_9_every_task_holds_an_output_until_the_latest_time(redis_server: Server) -> None:
    clock = Clock()
    key = OutputKey(str(uuid.uuid4()), "out")
    async with gates(clock) as (first, second):
        one, other = (gate.output(key, POLICY, None) for gate in (first, second))
        calm = first.output(OutputKey(key.pipeline_id, "calm"), POLICY, None)
        assert await admit(other) == Send()
        one.hold(600)
        await first.settled()
        for kind in ("first", "redelivery", "retry"):
            assert await admit(one, kind) == await admit(other, kind) == held(clock.now + 600)
        assert await admit(calm) == Send()
        other.hold(900)
        one.hold(30)
        await asyncio.gather(first.settled(), second.settled())
        assert await admit(one) == await admit(other) == held(clock.now + 900)
        assert not one.opened.is_set()
        known = new_message_id()
        one.delivered(known, "0:1", probe=False)  # it was under way
        await first.settled()
        assert await other.admit("first", known) == Repeat("0:1")
        clock.now += 899.5
        assert await admit(other) == Send(pytest.approx(0.5, abs=0.01))
        clock.now += 0.5
        assert await admit(one) == await admit(other) == Send()


async def test_neighbours_9_what_another_task_admitted_before_is_asked_for_again(redis_server: Server) -> None:
    clock = Clock()
    key = OutputKey(str(uuid.uuid4()), "out")
    async with gates(clock) as (first, second):
        one, other = (gate.output(key, POLICY, None) for gate in (first, second))
        assert await admit(other) == Send()
        holds, epoch = other.holds, other.epoch
        one.hold(600)
        await first.settled()
        other.delivered(new_message_id(), "0:1", probe=False)  # any report tells
        await second.settled()
        assert other.holds > holds
        assert other.epoch > epoch
        holds = other.holds
        for _ in range(20):
            other.delivered(new_message_id(), "0:1", probe=False)
            await second.settled()
        assert other.holds == holds  # once


async def test_neighbours_9_a_hold_expires_in_redis(output: Callable[..., OutputGate], gate: Gate) -> None:
    out = output()
    out.hold(600)
    await gate.settled()
    async with redis.from_url(REDIS_URL) as client:
        assert 590_000 < await client.pttl(out.key.hold) <= 601_000
        out.hold(900)
        await gate.settled()
        assert 890_000 < await client.pttl(out.key.hold) <= 901_000


async def test_neighbours_9_a_hold_that_redis_loses_is_told_again(redis_server: Server) -> None:
    clock = Clock()
    key = OutputKey(str(uuid.uuid4()), "out")
    async with gates(clock) as (first, second), redis.from_url(REDIS_URL) as client:
        one, other = (gate.output(key, POLICY, None) for gate in (first, second))
        one.hold(600)
        assert isinstance(await admit(one), Held)
        await client.flushall()
        clock.now += 100
        assert await admit(one) == held(clock.now + 500)
        await first.settled()
        assert await admit(other) == held(clock.now + 500)
        # A task that has only heard of it remembers it as well.
        await client.flushall()
        assert await admit(other) == held(clock.now + 500)


async def test_neighbours_9_without_redis_a_hold_is_kept_and_told_later(redis_server: Server) -> None:
    clock = Clock()
    key = OutputKey(str(uuid.uuid4()), "out")
    async with gates(clock) as (first, second):
        one, other = (gate.output(key, POLICY, None) for gate in (first, second))
        assert await admit(one) == await admit(other) == Send()
        redis_server.stop(signal.SIGKILL)
        try:
            assert isinstance(await admit(one), Send)
            one.hold(600)
            assert await admit(one) == held(clock.now + 600)
            clock.now += 100
            assert await admit(one) == held(clock.now + 500)
            assert isinstance(await admit(other), Send)  # it cannot know
        finally:
            redis_server.start()

        async def told() -> bool:
            return isinstance(await admit(other), Held)

        await wait_until_async(told)
        await first.settled()
        assert await admit(other) == await admit(one) == held(clock.now + 500)


async def test_neighbours_9_no_probe_is_sent_during_a_hold(output: Callable[..., OutputGate], clock: Clock) -> None:
    out = output()
    for number in range(3):
        out.failed(f"error {number}", probe=False)
    out.hold(600)
    assert await admit(out) == Held("breaker_open", clock.now + 100, cause="error 2")
    clock.now += 100
    assert await admit(out) == held(clock.now + 500)
    clock.now += 500
    assert await admit(out) == Send(probe=True)


async def test_neighbours_9_after_a_hold_the_rate_limit_counts(output: Callable[..., OutputGate], clock: Clock) -> None:
    out = output(RateLimitPolicy(messages=1, period_seconds=10, burst=2))
    out.hold(600)
    assert await admit(out) == held(clock.now + 600)
    clock.now += 599.5
    answers = [await admit(out) for _ in range(4)]
    assert answers[:3] == [Send(pytest.approx(0.5, abs=0.01))] * 3
    assert isinstance(answers[3], Held)
    assert not answers[3].asked


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(
            st.integers(0, 1), st.sampled_from(["admit", "admit", "ask", "pass", "lose"]), st.integers(0, 20_000)
        ),
        max_size=25,
    )
)
def test_neighbours_9_holds_agree_with_the_model(redis_server: Server, steps: list[tuple[int, str, int]]) -> None:
    async def run() -> None:
        clock = Clock()
        key = OutputKey(str(uuid.uuid4()), "out")
        async with gates(clock) as started, redis.from_url(REDIS_URL) as client:
            outputs = [gate.output(key, POLICY, None) for gate in started]
            until = 0.0
            for which, step, milliseconds in steps:
                match step:
                    case "pass":
                        clock.now += milliseconds / 1000
                    case "ask":
                        until = max(until, clock.now + milliseconds / 1000)
                        outputs[which].hold(milliseconds / 1000)
                        await started[which].settled()
                        await asyncio.gather(*(admit(output) for output in outputs))  # which hear of it
                    case "lose":
                        await client.delete(key.hold)
                    case "admit":
                        admission = await outputs[which].admit("retry", "")
                        left = until - clock.now
                        if left > TOKEN_HORIZON_SECONDS + 0.01:
                            assert admission == held(until)
                        elif left < TOKEN_HORIZON_SECONDS - 0.01:
                            assert admission == Send(pytest.approx(max(0.0, left), abs=0.01))

    asyncio.run(run())
