"""Batches of an output: gathered by count, bytes and age, with an outcome for each message."""

import asyncio
import json
import time
import uuid
from collections import Counter
from typing import Any

import pytest
from aiohttp import web

from backend.delivery.outcomes import Delivered, Outcome, Suppressed, Undeliverable
from backend.delivery.output import Output
from backend.domain.breaker import BreakerPolicy
from backend.domain.connector import RuntimeConnector
from backend.domain.message import Message, new_message_id, utc_now
from backend.domain.pipeline import OutputConfig, RuntimeOutput
from backend.domain.reasons import Reason
from backend.resilience.gate import Gate
from backend.telemetry.recorder import Recorder
from tests.infra import REDIS_URL
from tests.receiver import Receiver, receiver
from tests.waiting import LIMIT_SECONDS

PATIENT = BreakerPolicy(errors=1000)
QUICK = {"attempts": 3, "initial_seconds": 0.01}


def message(number: int, key: str = "") -> Message:
    message_id = new_message_id()
    body = json.dumps({"n": number}).encode()
    return Message(message_id, "p", 1, key.encode() or message_id.encode(), body, "application/json", utc_now(), ())


class Batched:
    """An HTTP output that sends batches."""

    def __init__(self, gate: Gate, url: str, *, breaker: BreakerPolicy = PATIENT, **config: Any) -> None:
        config = {"batch": {"messages": 10, "seconds": 30}, "retry": QUICK, "logged_successes": 1} | config
        self.runtime = RuntimeOutput(
            connector=RuntimeConnector(type="http", connection={"url": url}),
            config=OutputConfig.model_validate({"name": "out", "connector": str(uuid.uuid4()), **config}),
        )
        self.output = Output(str(uuid.uuid4()), self.runtime, recorder=Recorder(REDIS_URL), gate=gate, breaker=breaker)
        self.close = self.output.close

    async def send(self, *messages: Message) -> list[Outcome]:
        accepted = [self.output.accept(self.runtime, 1, m, f"0:{n}") for n, m in enumerate(messages)]
        return await asyncio.gather(*(self.output.send(delivery) for delivery in accepted))


def lines(body: bytes) -> list[int]:
    return [json.loads(line)["n"] for line in body.splitlines()]


async def ok(_: web.Request) -> web.Response:
    return web.Response(text="ok")


async def test_a_batch_is_sent_when_it_is_full_and_each_message_has_its_outcome(gate: Gate) -> None:
    async with receiver(ok) as inbox:
        output = Batched(gate, inbox.url)
        sent = [message(n) for n in range(20)]
        outcomes = await output.send(*sent)
        await output.close()
    assert [lines(body) for body in inbox.bodies] == [list(range(10)), list(range(10, 20))]
    assert {headers["Content-Type"] for headers in inbox.headers} == {"application/x-ndjson"}
    assert all(isinstance(outcome, Delivered) for outcome in outcomes)
    assert all(len(outcome.attempts) == 1 for outcome in outcomes)


async def test_a_batch_is_sent_when_it_is_old_or_large_enough(gate: Gate) -> None:
    async with receiver(ok) as inbox:
        old = Batched(gate, inbox.url, batch={"messages": 100, "seconds": 0.5})
        await old.send(*(message(n) for n in range(3)))
        large = Batched(gate, inbox.url, batch={"messages": 100, "seconds": 1, "bytes": 50})
        await large.send(*(message(n) for n in range(10)))
        await old.close()
        await large.close()
    assert lines(inbox.bodies[0]) == [0, 1, 2]
    assert all(len(body) <= 60 for body in inbox.bodies[1:])
    assert sorted(n for body in inbox.bodies[1:] for n in lines(body)) == list(range(10))


async def test_what_waits_for_its_batch_can_be_flushed(gate: Gate) -> None:
    async with receiver(ok) as inbox:
        output = Batched(gate, inbox.url, batch={"messages": 100, "seconds": 60})
        sending = asyncio.ensure_future(output.send(*(message(n) for n in range(3))))
        while not sending.done():
            output.output.flush()
            await asyncio.sleep(0.01)
        assert all(isinstance(outcome, Delivered) for outcome in sending.result())
        await output.close()
    assert len(inbox.bodies) == 1


async def test_only_the_message_at_fault_fails_when_a_batch_is_refused(gate: Gate) -> None:
    async def refuse_seven(request: web.Request) -> web.Response:
        return web.Response(status=422 if 7 in lines(await request.read()) else 200)

    async with receiver(refuse_seven) as inbox:
        output = Batched(gate, inbox.url)
        outcomes = await output.send(*(message(n) for n in range(10)))
        await output.close()
    assert [n for n, outcome in enumerate(outcomes) if isinstance(outcome, Undeliverable)] == [7]
    failed = outcomes[7]
    assert isinstance(failed, Undeliverable)
    assert (failed.reason, failed.retryable) == ("http_422", False)
    accepted = [n for body in inbox.bodies if 7 not in lines(body) for n in lines(body)]
    assert sorted(accepted) == [n for n in range(10) if n != 7]


async def test_a_receiver_may_answer_for_each_line(gate: Gate) -> None:
    refused_once: set[int] = set()

    async def answer(request: web.Request) -> web.Response:
        statuses = []
        for n in lines(await request.read()):
            busy = n == 3 and n not in refused_once
            refused_once.add(n)
            statuses.append({"status": 503 if busy else 422 if n == 5 else 200})
        return web.json_response(statuses, status=207)

    async with receiver(answer) as inbox:
        output = Batched(gate, inbox.url, options={"batch_answer": "status_per_line"})
        outcomes = await output.send(*(message(n) for n in range(10)))
        await output.close()
    assert [lines(body) for body in inbox.bodies] == [list(range(10)), [3]]
    assert isinstance(outcomes[3], Delivered)
    assert [attempt.status for attempt in outcomes[3].attempts] == ["503", "200"]
    assert isinstance(outcomes[5], Undeliverable)


async def test_neighbours_3_a_list_of_statuses_is_read_with_200_too(gate: Gate) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response([{"status": 422 if n == 1 else 200} for n in lines(await request.read())])

    async with receiver(answer) as inbox:
        output = Batched(gate, inbox.url, batch={"messages": 3}, options={"batch_answer": "status_per_line"})
        first, second, third = await output.send(*(message(n) for n in range(3)))
        await output.close()
    assert isinstance(first, Delivered)
    assert isinstance(second, Undeliverable)
    assert (second.reason, second.retryable) == ("http_422", False)
    assert isinstance(third, Delivered)
    assert len(inbox.bodies) == 1


@pytest.mark.parametrize("status", ["0", "99", "-1", "false", "true", "200.9", "299.99", "1e400", "1e5000", '"200"'])
async def test_neighbours_3_no_line_is_delivered_by_a_status_that_is_none(gate: Gate, status: str) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=207, text=f'[{{"status":200}},{{"status":{status}}}]')

    async with receiver(answer) as inbox:
        output = Batched(gate, inbox.url, batch={"messages": 2}, options={"batch_answer": "status_per_line"})
        outcomes = await output.send(message(0), message(1))
        await output.close()
    for outcome in outcomes:
        assert isinstance(outcome, Undeliverable)
        assert (outcome.reason, outcome.retryable) == (Reason.ANSWER, True)
        assert [attempt.status for attempt in outcome.attempts] == ["207"] * 3


@pytest.mark.parametrize("status", [207, 429, 503])
async def test_neighbours_9_an_answer_to_a_batch_holds_the_output(gate: Gate, status: int) -> None:
    came: list[float] = []

    async def busy(request: web.Request) -> web.Response:
        came.append(time.monotonic())
        numbers = lines(await request.read())
        if len(came) > 1:
            return web.json_response([{"status": 200} for _ in numbers], status=207)
        headers = {"Retry-After": "3"}
        if status != 207:
            return web.Response(status=status, headers=headers)
        return web.json_response([{"status": 503 if n == 1 else 200} for n in numbers], status=207, headers=headers)

    async with receiver(busy) as inbox:
        output = Batched(gate, inbox.url, batch={"messages": 3}, options={"batch_answer": "status_per_line"})
        sending = asyncio.ensure_future(output.send(*(message(n) for n in range(3))))
        await inbox.received(1)
        async with asyncio.timeout(LIMIT_SECONDS):
            while not output.output._gate.holds:
                await asyncio.sleep(0.001)
        held = await output.send(*(message(n) for n in range(3, 6)))
        outcomes = await sending
        await output.close()
    assert came[1] - came[0] >= 3
    assert lines(inbox.bodies[1]) == ([1] if status == 207 else [0, 1, 2])
    assert all(isinstance(outcome, Delivered) for outcome in outcomes)
    for outcome in held:
        assert isinstance(outcome, Undeliverable)
        assert (outcome.reason, outcome.attempts) == ("rate_limited", [])


@pytest.mark.parametrize("answer_kind", ["one_status", "status_per_line"])
async def test_the_order_of_a_key_is_kept_through_failures(gate: Gate, answer_kind: str) -> None:
    attempts: Counter[int] = Counter()

    async def flaky(request: web.Request) -> web.Response:
        numbers = lines(await request.read())
        attempts.update(numbers)
        busy = [attempts[n] <= n % 4 for n in numbers]
        if answer_kind == "one_status":
            if not any(busy):
                accepted.extend(numbers)
            return web.Response(status=503 if any(busy) else 200)
        accepted.extend(n for n, is_busy in zip(numbers, busy, strict=True) if not is_busy)
        return web.json_response([{"status": 503 if is_busy else 200} for is_busy in busy], status=207)

    accepted: list[int] = []
    async with receiver(flaky) as inbox:
        output = Batched(
            gate,
            inbox.url,
            batch={"messages": 5, "seconds": 0.02},
            options={"batch_answer": answer_kind},
            retry={"attempts": 10, "initial_seconds": 0.01, "factor": 1},
        )
        outcomes = await output.send(*(message(n, key=f"key-{n % 3}") for n in range(30)))
        await output.close()
    assert all(isinstance(outcome, Delivered) for outcome in outcomes)
    for key in range(3):
        assert [n for n in accepted if n % 3 == key] == [n for n in range(30) if n % 3 == key]


async def test_neighbours_7_a_batch_that_fails_is_one_failure_to_the_breaker(gate: Gate) -> None:
    async def fail(_: web.Request) -> web.Response:
        return web.Response(status=500)

    async with receiver(fail) as inbox:
        output = Batched(
            gate, inbox.url, breaker=BreakerPolicy(errors=3, open_seconds=60), retry=QUICK | {"attempts": 2}
        )
        outcomes = [await output.send(*(message(n) for n in range(10))) for _ in range(4)]
        await output.close()
    assert len(inbox.bodies) == 2 + 2 + 1  # the third opens it before its second attempt
    reasons = [{outcome.reason for outcome in batch if isinstance(outcome, Undeliverable)} for batch in outcomes]
    assert reasons == [{"http_500"}, {"http_500"}, {"breaker_open"}, {"breaker_open"}]


async def test_a_repeat_is_left_out_of_its_batch(gate: Gate) -> None:
    async with receiver(ok) as inbox:
        output = Batched(gate, inbox.url, batch={"messages": 2, "seconds": 0.05})
        known, fresh = message(1), message(2)
        await output.send(known)
        await gate.settled()
        again, first = await output.send(known, fresh)
        await output.close()
    assert isinstance(again, Suppressed)
    assert isinstance(first, Delivered)
    assert [lines(body) for body in inbox.bodies] == [[1], [2]]


async def test_no_more_batches_at_a_time_than_allowed_and_none_is_lost(gate: Gate) -> None:
    running = most = 0
    two_are_running = asyncio.Event()

    async def count(_: web.Request) -> web.Response:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 2:
            two_are_running.set()
        await two_are_running.wait()
        await asyncio.sleep(0.01)
        running -= 1
        return web.Response()

    async with receiver(count) as inbox:
        output = Batched(gate, inbox.url, concurrency=2, queue=50, batch={"messages": 10, "seconds": 0.05})
        outcomes = await output.send(*(message(n) for n in range(200)))
        await output.close()
    assert all(isinstance(outcome, Delivered) for outcome in outcomes)
    assert sorted(n for body in inbox.bodies for n in lines(body)) == list(range(200))
    assert most == 2


async def test_a_line_is_what_the_options_say(gate: Gate) -> None:
    def pretty(content_type: str) -> Message:
        message_id = new_message_id()
        return Message(message_id, "p", 1, message_id.encode(), b'{\n "n": 1.10\n}', content_type, "2026-01-01", ())

    async def sent(**options: Any) -> Receiver:
        async with receiver(ok) as inbox:
            output = Batched(gate, inbox.url, batch={"messages": 2, "seconds": 0.05}, options=options)
            no_json = Message(new_message_id(), "p", 1, b"k", b"<a/>", "application/xml", utc_now(), ())
            outcomes = await output.send(pretty("application/json"), no_json)
            assert [type(outcome) for outcome in outcomes] == [Delivered, Undeliverable]
            assert isinstance(outcomes[1], Undeliverable)
            assert outcomes[1].reason == "not_json"
            await output.close()
        return inbox

    assert (await sent()).bodies == [b'{"n":1.10}\n']
    [line] = (await sent(batch_lines="envelope")).bodies
    assert json.loads(line)["body"] == {"n": 1.1}
    assert b"1.10" in line


async def test_a_hanging_receiver_of_batches_is_cut_off(gate: Gate) -> None:
    repaired = asyncio.Event()

    async def hang(_: web.Request) -> web.Response:
        await repaired.wait()
        return web.Response()

    async with receiver(hang) as inbox:
        output = Batched(gate, inbox.url, timeout_seconds=0.2, retry={"attempts": 1})
        async with asyncio.timeout(LIMIT_SECONDS):
            outcomes = await output.send(*(message(n) for n in range(10)))
        repaired.set()
        await output.close()
    assert {outcome.reason for outcome in outcomes if isinstance(outcome, Undeliverable)} == {"timeout"}


async def test_copies_of_a_message_never_share_a_batch(gate: Gate) -> None:
    async with receiver(ok) as inbox:
        output = Batched(
            gate, inbox.url, options={"batch_answer": "one_status"}, batch={"messages": 10, "seconds": 0.05}
        )
        first, last = message(1, "key"), message(2, "key")
        outcomes = await output.send(first, first, last)
        await output.close()
    assert [type(outcome) for outcome in outcomes] == [Delivered, Suppressed, Delivered]
    assert [lines(body) for body in inbox.bodies] == [[1], [2]]
