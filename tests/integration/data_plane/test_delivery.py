import asyncio
import time
import uuid
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import pytest
from aiohttp import web
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from standardwebhooks.webhooks import Webhook

from backend.delivery.outcomes import Delivered, Outcome, Suppressed, Undeliverable
from backend.delivery.output import Output
from backend.domain.breaker import BreakerPolicy
from backend.domain.connector import RuntimeConnector
from backend.domain.message import Message, new_message_id, utc_now
from backend.domain.pipeline import OutputConfig, RuntimeOutput
from backend.resilience.gate import Gate
from backend.telemetry.recorder import Recorder
from tests.infra import KAFKA, REDIS_URL, Server
from tests.integration.kafka_ends import end_offset
from tests.receiver import receiver
from tests.topics import records_of
from tests.waiting import LIMIT_SECONDS

CONNECTOR = "0198a7e5-0000-7000-8000-000000000000"


def message(key: bytes | None = None, body: bytes = b"{}") -> Message:
    message_id = new_message_id()
    return Message(message_id, PIPELINE, 1, key or message_id.encode(), body, "application/json", utc_now(), ())


PIPELINE = "0198a7e5-0000-7000-8000-000000000001"
PATIENT = BreakerPolicy(errors=1000)


class OneVersion:
    """An output as one version of its pipeline uses it."""

    def __init__(self, output: Output, runtime: RuntimeOutput) -> None:
        self.output = output
        self.runtime = runtime
        self.evict_queue = output.evict_queue
        self.close = output.close


def made(gate: Gate, runtime: RuntimeOutput) -> OneVersion:
    pipeline = str(uuid.uuid4())  # a breaker and a ledger of its own
    return OneVersion(Output(pipeline, runtime, recorder=Recorder(REDIS_URL), gate=gate, breaker=PATIENT), runtime)


async def send(output: OneVersion, sent: Message, position: str = "0:0") -> Outcome:
    return await output.output.send(output.output.accept(output.runtime, 1, sent, position))


def http_output(gate: Gate, url: str, connection: dict[str, Any] | None = None, **config: Any) -> OneVersion:
    config = {"retry": {"attempts": 3, "initial_seconds": 0.01}, "logged_successes": 1} | config
    runtime = RuntimeOutput(
        connector=RuntimeConnector(type="http", connection={"url": url} | (connection or {})),
        config=OutputConfig.model_validate({"name": "out", "connector": CONNECTOR, **config}),
    )
    return made(gate, runtime)


async def ok(_: web.Request) -> web.Response:
    return web.Response(text="ok")


async def test_a_message_arrives_with_its_id_and_credentials(gate: Gate) -> None:
    async with receiver(ok) as server:
        output = http_output(
            gate, server.url, {"authentication": {"type": "bearer", "token": "t"}}, options={"path": "/x"}
        )
        sent = message(body=b'{"a":1.10}')
        outcome = await send(output, sent)
        assert isinstance(outcome, Delivered)
        assert outcome.status == "200"
        assert [(a.number, a.status, a.reason, a.response) for a in outcome.attempts] == [(1, "200", "", "ok")]
        await output.close()
    assert server.bodies == [b'{"a":1.10}']
    assert server.headers[0]["Headrace-Message-Id"] == sent.id
    assert server.headers[0]["Authorization"] == "Bearer t"


async def test_a_passing_fault_is_tried_again_and_a_final_answer_is_not(gate: Gate) -> None:
    answers = iter([500, 429, 200])

    async def flaky(_: web.Request) -> web.Response:
        return web.Response(status=next(answers))

    async with receiver(flaky) as server:
        output = http_output(gate, server.url)
        outcome = await send(output, message())
        assert isinstance(outcome, Delivered)
        assert [a.status for a in outcome.attempts] == ["500", "429", "200"]
        await output.close()

    async def refuse(_: web.Request) -> web.Response:
        return web.Response(status=422, text="no such order")

    async with receiver(refuse) as server:
        output = http_output(gate, server.url)
        outcome = await send(output, message())
        await output.close()
    assert isinstance(outcome, Undeliverable)
    assert (outcome.reason, len(outcome.attempts), outcome.retryable) == ("http_422", 1, False)
    assert outcome.attempts[0].response == "no such order"
    assert "no such order" in outcome.error
    assert len(server.bodies) == 1


async def test_retry_after_is_respected(gate: Gate) -> None:
    times: list[float] = []

    async def later(_: web.Request) -> web.Response:
        times.append(time.monotonic())
        return web.Response(status=503, headers={"Retry-After": "1"}) if len(times) == 1 else web.Response()

    async with receiver(later) as server:
        output = http_output(gate, server.url)
        assert isinstance(await send(output, message()), Delivered)
        await output.close()
    assert times[1] - times[0] >= 1


@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_neighbours_9_the_last_attempt_waits_for_as_long_as_the_receiver_says(gate: Gate, form: str) -> None:
    async def later(_: web.Request) -> web.Response:
        date = format_datetime(datetime.fromtimestamp(time.time() + 600, UTC), usegmt=True)
        return web.Response(status=429, headers={"Retry-After": date if form == "date" else "600"})

    began = time.time()
    async with receiver(later) as server:
        output = http_output(gate, server.url, retry={"attempts": 1})
        failed, kept_back = await send(output, message()), await send(output, message())
        await output.close()
    ended = time.time()
    assert isinstance(failed, Undeliverable)
    assert isinstance(kept_back, Undeliverable)
    assert (failed.reason, failed.retryable, len(failed.attempts)) == ("http_429", False, 1)
    assert (kept_back.reason, len(kept_back.attempts)) == ("rate_limited", 0)
    for outcome in (failed, kept_back):
        assert outcome.due is not None
        assert began + 598 < outcome.due < ended + 601
    assert "The receiver asked to be left alone until" in kept_back.error
    assert len(server.bodies) == 1


async def test_neighbours_9_a_longer_wish_is_cut_and_said(gate: Gate) -> None:
    async def tomorrow(_: web.Request) -> web.Response:
        return web.Response(status=503, headers={"Retry-After": "86400"})

    async with receiver(tomorrow) as server:
        output = http_output(gate, server.url)
        failed = await send(output, message())
        await output.close()
    assert isinstance(failed, Undeliverable)
    assert failed.due == pytest.approx(time.time() + 6 * 3600, abs=LIMIT_SECONDS)
    assert "Headrace waits 6 hours at most" in failed.error
    assert "Headrace waits 6 hours at most" in failed.attempts[0].error


async def test_neighbours_9_what_is_admitted_waits_for_a_hold_that_began_since(gate: Gate) -> None:
    """Messages that have been admitted queue for the only slot, while the first one is answered."""
    came: list[float] = []
    all_wait = asyncio.Event()

    async def busy(_: web.Request) -> web.Response:
        came.append(time.monotonic())
        await all_wait.wait()
        return web.Response(status=503, headers={"Retry-After": "2"}) if len(came) == 1 else web.Response()

    async with receiver(busy) as server, asyncio.timeout(LIMIT_SECONDS):
        output = http_output(gate, server.url, concurrency=1)
        sends = [asyncio.ensure_future(send(output, message())) for _ in range(10)]
        while output.output._slots.waiting < 9:
            await asyncio.sleep(0.01)
        all_wait.set()
        outcomes = await asyncio.gather(*sends)
        await output.close()
    assert came[1] - came[0] >= 2
    assert len([outcome for outcome in outcomes if isinstance(outcome, Delivered)]) == 1  # the one that was asked for
    held = [outcome for outcome in outcomes if isinstance(outcome, Undeliverable)]
    assert {outcome.reason for outcome in held} == {"rate_limited"}


async def test_a_receiver_that_hangs_or_is_away_ends_in_a_dead_letter_with_its_cause(gate: Gate) -> None:
    repaired = asyncio.Event()

    async def hang(_: web.Request) -> web.Response:
        await repaired.wait()
        return web.Response()

    retry = {"attempts": 2, "initial_seconds": 0.01}
    async with receiver(hang) as server:
        output = http_output(gate, server.url, timeout_seconds=0.1, retry=retry)
        outcome = await send(output, message())
        repaired.set()
        await output.close()
    assert isinstance(outcome, Undeliverable)
    assert (outcome.reason, outcome.error) == ("timeout", "No answer within 0.1 seconds.")
    assert (len(outcome.attempts), outcome.retryable) == (2, True)
    output = http_output(gate, "http://127.0.0.1:1/", retry=retry)
    outcome = await send(output, message())
    await output.close()
    assert isinstance(outcome, Undeliverable)
    assert outcome.reason == "connection"


async def test_messages_with_one_key_keep_their_order_and_others_overtake(gate: Gate) -> None:
    overtaken = asyncio.Event()

    async def hold_a1(request: web.Request) -> web.Response:
        match await request.read():
            case b"a1":
                await overtaken.wait()
            case b"b1":
                overtaken.set()
        return web.Response()

    async with receiver(hold_a1) as server:
        output = http_output(gate, server.url)
        await asyncio.gather(*(send(output, message(body[:1], body)) for body in (b"a1", b"a2", b"b1", b"a3")))
        await output.close()
    assert server.bodies.index(b"b1") < server.bodies.index(b"a2")
    assert [body for body in server.bodies if body.startswith(b"a")] == [b"a1", b"a2", b"a3"]


async def test_no_more_than_the_configured_number_is_under_way(gate: Gate) -> None:
    running = most = 0
    all_others_wait = asyncio.Event()

    async def count(_: web.Request) -> web.Response:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.wait_for(all_others_wait.wait(), 60)
        running -= 1
        return web.Response()

    async with receiver(count) as server:
        output = http_output(gate, server.url, concurrency=3)
        sends = [asyncio.ensure_future(send(output, message())) for _ in range(30)]
        async with asyncio.timeout(60):  # with a fourth under way there would never be so many
            while output.output._slots.waiting < 27:
                await asyncio.sleep(0.01)
        await server.received(3)
        all_others_wait.set()
        await asyncio.gather(*sends)
        await output.close()
    assert most == 3


async def test_kafka_output_delivers_and_says_what_is_missing(gate: Gate, kafka: Server) -> None:
    topic = f"out-{new_message_id()}"
    admin = AdminClient({"bootstrap.servers": KAFKA})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()

    end_offset(topic)

    def output_to(name: str, attempts: int) -> OneVersion:
        config = {"name": "k", "connector": CONNECTOR, "options": {"topic": name}, "retry": {"attempts": attempts}}
        runtime = RuntimeOutput(
            connector=RuntimeConnector(type="kafka", connection={"bootstrap_servers": KAFKA}),
            config=OutputConfig.model_validate(config),
        )
        return made(gate, runtime)

    output = output_to(topic, 3)
    sent = message(b"key", b"body")
    outcome = await send(output, sent)
    assert isinstance(outcome, Delivered)
    assert outcome.status == f"{topic}[0]@0"
    await output.close()
    [record] = records_of(topic)
    assert (record.key(), record.value()) == (b"key", b"body")
    assert ("message-id", sent.id.encode()) in (record.headers() or [])

    output = output_to(f"{topic}-missing", 1)
    outcome = await send(output, message())
    await output.close()
    assert isinstance(outcome, Undeliverable)
    assert "nknown topic" in outcome.error


@pytest.mark.parametrize("connection", [{"url": "nonsense"}, {}])
async def test_a_configuration_that_no_longer_fits_is_a_dead_letter(gate: Gate, connection: dict[str, Any]) -> None:
    config = OutputConfig.model_validate({"name": "out", "connector": CONNECTOR})
    runtime = RuntimeOutput(connector=RuntimeConnector(type="http", connection=connection), config=config)
    outcome = await send(made(gate, runtime), message())
    assert isinstance(outcome, Undeliverable)
    assert outcome.reason == "configuration"


async def test_a_repeat_is_suppressed_and_says_whether_it_is_the_same_read(gate: Gate) -> None:
    async with receiver(ok) as server:
        output = http_output(gate, server.url)
        sent = message()
        assert isinstance(await send(output, sent, "0:1"), Delivered)
        assert await send(output, sent, "0:1") == Suppressed(same_read=True)
        assert await send(output, sent, "0:2") == Suppressed(same_read=False)
        await output.close()
    assert len(server.bodies) == 1


async def test_a_hanging_output_keeps_its_own_share_and_sets_the_rest_aside_for_others(gate: Gate) -> None:
    repaired = asyncio.Event()

    async def hang(_: web.Request) -> web.Response:
        await repaired.wait()
        return web.Response()

    async with receiver(hang) as server:
        output = http_output(gate, server.url, queue=10, concurrency=4)
        sends = [asyncio.ensure_future(send(output, message())) for _ in range(50)]
        await server.received(4)
        assert not any(one.done() for one in sends)
        output.evict_queue()
        aside = await asyncio.gather(*sends[10:])
        repaired.set()
        assert {outcome.reason for outcome in aside if isinstance(outcome, Undeliverable)} == {"output_saturated"}
        assert all(isinstance(outcome, Undeliverable) and outcome.due for outcome in aside)
        assert all(isinstance(outcome, Delivered) for outcome in await asyncio.gather(*sends[:10]))
        await output.close()


async def test_a_message_that_is_not_sent_waits_for_no_place(gate: Gate) -> None:
    repaired = asyncio.Event()

    async def hang_after_the_first(_: web.Request) -> web.Response:
        if len(server.bodies) > 1:
            await repaired.wait()
        return web.Response()

    async with receiver(hang_after_the_first) as server:
        output = http_output(gate, server.url, concurrency=1)
        delivered = message()
        assert isinstance(await send(output, delivered), Delivered)
        hanging = asyncio.ensure_future(send(output, message()))
        await server.received(2)
        assert isinstance(await send(output, delivered), Suppressed)
        assert not hanging.done()
        repaired.set()
        assert isinstance(await hanging, Delivered)
        await output.close()


async def test_a_busy_output_that_goes_on_sets_nothing_aside(gate: Gate) -> None:
    async with receiver(ok) as server:
        output = http_output(gate, server.url, queue=20)
        outcomes = await asyncio.gather(*(send(output, message()) for _ in range(1000)))
        await output.close()
    assert all(isinstance(outcome, Delivered) for outcome in outcomes)
    assert len(server.bodies) == 1000


async def test_an_open_breaker_ends_waiting_and_spares_the_receiver(gate: Gate) -> None:
    async def down(_: web.Request) -> web.Response:
        return web.Response(status=503, headers={"Retry-After": "30"})  # longer waits are not held

    async with receiver(down) as server:
        output = http_output(gate, server.url, breaker={"errors": 5}, retry={"attempts": 20})
        async with asyncio.timeout(25):  # any other attempt comes after more than that
            outcomes = await asyncio.gather(*(send(output, message()) for _ in range(20)))
        assert {outcome.reason for outcome in outcomes if isinstance(outcome, Undeliverable)} == {"breaker_open"}
        tried = len(server.bodies)
        assert isinstance(await send(output, message()), Undeliverable)
        assert len(server.bodies) == tried
        await output.close()


async def test_messages_that_wait_for_a_place_are_not_sent_once_the_breaker_is_open(gate: Gate) -> None:
    all_let_through = asyncio.Event()

    async def down(_: web.Request) -> web.Response:
        await asyncio.wait_for(all_let_through.wait(), LIMIT_SECONDS)
        return web.Response(status=503)

    async with receiver(down) as server:
        output = http_output(gate, server.url, concurrency=1, breaker={"errors": 3}, retry={"attempts": 1})
        sends = [asyncio.ensure_future(send(output, message())) for _ in range(20)]
        while output.output._slots.waiting < 19:
            await asyncio.sleep(0.01)
        all_let_through.set()
        await asyncio.gather(*sends)
        await output.close()
    assert len(server.bodies) == 3


@pytest.mark.parametrize(("status", "opens"), [(400, False), (404, False), (409, False), (413, False), (422, False),
                                               (401, True), (403, True), (429, True), (500, True)])  # fmt: skip
async def test_neighbours_7_the_final_rejection_of_single_messages_is_no_error_of_the_receiver(
    gate: Gate, status: int, opens: bool
) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.Response(status=status if await request.read() == b"bad" else 200)

    async with receiver(refuse) as server:
        output = http_output(gate, server.url, breaker={"errors": 5}, retry={"attempts": 1})
        for _ in range(5):
            assert isinstance(await send(output, message(body=b"bad")), Undeliverable)
        await gate.settled()
        outcome = await send(output, message(body=b"good"))
        await output.close()
    assert isinstance(outcome, Undeliverable if opens else Delivered)


async def test_neighbours_7_a_message_is_one_error_to_the_breaker_and_none_once_it_is_delivered(gate: Gate) -> None:
    failures = {b"never": 99, b"late": 2}

    async def fail(request: web.Request) -> web.Response:
        body = await request.read()
        failures[body] = failures.get(body, 0) - 1
        return web.Response(status=503 if failures[body] >= 0 else 200)

    async with receiver(fail) as server:
        retry = {"attempts": 4, "initial_seconds": 0.01}
        output = http_output(gate, server.url, breaker={"errors": 4}, retry=retry)
        for _ in range(2):
            assert isinstance(await send(output, message(body=b"never")), Undeliverable)
        for _ in range(2):
            failures[b"late"] = 2
            assert isinstance(await send(output, message(body=b"late")), Delivered)
        assert isinstance(await send(output, message(body=b"never")), Undeliverable)
        assert isinstance(await send(output, message(body=b"good")), Delivered)
        last = await send(output, message(body=b"never"))
        await output.close()
    assert isinstance(last, Undeliverable)
    assert last.reason == "breaker_open"
    assert server.bodies.count(b"never") == 4 + 4 + 4 + 1


async def test_the_receiver_never_sees_more_than_its_rate_limit(gate: Gate) -> None:
    began: list[float] = []
    times: list[float] = []

    async def note(_: web.Request) -> web.Response:
        times.append(time.monotonic())
        return web.Response()

    async with receiver(note) as server:
        output = http_output(gate, server.url, rate_limit={"messages": 20, "period_seconds": 1, "burst": 5})
        outcomes = []
        for _ in range(3):
            began.append(time.monotonic())
            outcomes += await asyncio.gather(*(send(output, message()) for _ in range(60)))
        await output.close()
    delivered = [outcome for outcome in outcomes if isinstance(outcome, Delivered)]
    held = [outcome for outcome in outcomes if isinstance(outcome, Undeliverable)]
    assert len(times) == len(delivered) > 40
    assert {outcome.reason for outcome in held} == {"rate_limited"}
    assert all(outcome.due for outcome in held)
    # Counted from the first possible token, not from the first arrival: a late arrival does not shift the limit.
    for start in began:
        came = sorted(at - start for at in times if at >= start)
        assert all(count <= 5 + 1 + 20 * at for count, at in enumerate(came, 1))


async def test_a_long_wish_of_the_receiver_is_waited_for_outside_the_window(gate: Gate) -> None:
    async def much_later(_: web.Request) -> web.Response:
        return web.Response(status=429, headers={"Retry-After": "120"})

    began = time.time()
    async with receiver(much_later) as server:
        output = http_output(gate, server.url)
        outcome = await send(output, message())
        await output.close()
    assert isinstance(outcome, Undeliverable)
    assert outcome.due is not None
    assert began + 119 < outcome.due < time.time() + 121
    assert len(server.bodies) == 1


async def test_messages_are_signed_with_every_active_secret(gate: Gate) -> None:
    secrets = {"old": "whsec_" + "b2xk" * 10, "new": "whsec_" + "bmV3" * 10}
    async with receiver(ok) as server:
        output = http_output(gate, server.url, {"signing_secrets": secrets})
        await send(output, message(body=b'{"a": 1}'))
        await output.close()
    for secret in secrets.values():
        headers = {name.lower(): value for name, value in server.headers[0].items()}
        assert Webhook(secret).verify(server.bodies[0], headers) == {"a": 1}
