import asyncio
import time
from typing import Any

import pytest
from aiohttp import web
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from backend.delivery.output import Delivered, Output, Undeliverable
from backend.domain.message import Message, new_message_id, utc_now
from backend.domain.pipeline import OutputConfig, RuntimeOutput
from backend.telemetry.recorder import Recorder
from tests.infra import KAFKA, REDIS_URL, Server
from tests.receiver import receiver

CONNECTOR = "0198a7e5-0000-7000-8000-000000000000"


def message(key: bytes | None = None, body: bytes = b"{}") -> Message:
    message_id = new_message_id()
    return Message(message_id, "p", 1, key or message_id.encode(), body, "application/json", utc_now(), ())


def http_output(url: str, connection: dict[str, Any] | None = None, **config: Any) -> Output:
    config = {"retry": {"attempts": 3, "initial_seconds": 0.01}} | config
    runtime = RuntimeOutput(
        name="out",
        connector_type="http",
        connection={"url": url} | (connection or {}),
        config=OutputConfig.model_validate({"name": "out", "connector": CONNECTOR, **config}),
    )
    return Output("p", runtime, Recorder(REDIS_URL))


async def ok(_: web.Request) -> web.Response:
    return web.Response(text="ok")


async def test_a_message_arrives_with_its_id_and_credentials() -> None:
    async with receiver(ok) as found:
        output = http_output(found.url, {"authentication": {"type": "bearer", "token": "t"}}, options={"path": "/x"})
        sent = message(body=b'{"a":1.10}')
        assert await output.send(sent) == Delivered("200", 1)
        await output.close()
    assert found.bodies == [b'{"a":1.10}']
    assert found.headers[0]["Headrace-Message-Id"] == sent.id
    assert found.headers[0]["Authorization"] == "Bearer t"


async def test_a_passing_fault_is_tried_again_and_a_final_answer_is_not() -> None:
    answers = iter([500, 429, 200])

    async def flaky(_: web.Request) -> web.Response:
        return web.Response(status=next(answers))

    async with receiver(flaky) as found:
        output = http_output(found.url)
        assert await output.send(message()) == Delivered("200", 3)
        await output.close()

    async def refuse(_: web.Request) -> web.Response:
        return web.Response(status=422, text="no such order")

    async with receiver(refuse) as found:
        output = http_output(found.url)
        outcome = await output.send(message())
        await output.close()
    assert isinstance(outcome, Undeliverable)
    assert (outcome.reason, outcome.attempts) == ("http_422", 1)
    assert "no such order" in outcome.error
    assert len(found.bodies) == 1


async def test_retry_after_is_respected() -> None:
    times: list[float] = []

    async def later(_: web.Request) -> web.Response:
        times.append(time.monotonic())
        return web.Response(status=503, headers={"Retry-After": "1"}) if len(times) == 1 else web.Response()

    async with receiver(later) as found:
        output = http_output(found.url)
        assert isinstance(await output.send(message()), Delivered)
        await output.close()
    assert times[1] - times[0] >= 1


async def test_a_receiver_that_hangs_or_is_away_ends_in_a_dead_letter_with_its_cause() -> None:
    async def hang(_: web.Request) -> web.Response:
        await asyncio.sleep(5)
        return web.Response()

    retry = {"attempts": 2, "initial_seconds": 0.01}
    async with receiver(hang) as found:
        output = http_output(found.url, timeout_seconds=0.1, retry=retry)
        outcome = await output.send(message())
        await output.close()
    assert outcome == Undeliverable("timeout", "No answer within 0.1 seconds.", 2)
    output = http_output("http://127.0.0.1:1/", retry=retry)
    outcome = await output.send(message())
    await output.close()
    assert isinstance(outcome, Undeliverable)
    assert outcome.reason == "connection"


async def test_messages_with_one_key_keep_their_order_and_others_overtake() -> None:
    async def slow_for_a(request: web.Request) -> web.Response:
        if (await request.read()).startswith(b"a1"):
            await asyncio.sleep(0.2)
        return web.Response()

    async with receiver(slow_for_a) as found:
        output = http_output(found.url)
        await asyncio.gather(*(output.send(message(body[:1], body)) for body in (b"a1", b"a2", b"b1", b"a3")))
        await output.close()
    assert found.bodies.index(b"b1") < found.bodies.index(b"a2")
    assert [body for body in found.bodies if body.startswith(b"a")] == [b"a1", b"a2", b"a3"]


async def test_no_more_than_the_configured_number_is_under_way() -> None:
    running = most = 0

    async def count(_: web.Request) -> web.Response:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return web.Response()

    async with receiver(count) as found:
        output = http_output(found.url, concurrency=3)
        await asyncio.gather(*(output.send(message()) for _ in range(30)))
        await output.close()
    assert most == 3


async def test_kafka_output_delivers_and_says_what_is_missing(kafka: Server) -> None:
    topic = f"out-{new_message_id()}"
    admin = AdminClient({"bootstrap.servers": KAFKA})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()

    def output_to(name: str) -> Output:
        config = {"name": "k", "connector": CONNECTOR, "options": {"topic": name}, "retry": {"attempts": 1}}
        runtime = RuntimeOutput(
            name="k",
            connector_type="kafka",
            connection={"bootstrap_servers": KAFKA},
            config=OutputConfig.model_validate(config),
        )
        return Output("p", runtime, Recorder(REDIS_URL))

    output = output_to(topic)
    sent = message(b"key", b"body")
    assert await output.send(sent) == Delivered(f"{topic}[0]@0", 1)
    await output.close()
    consumer = Consumer({"bootstrap.servers": KAFKA, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    record = consumer.poll(20)
    consumer.close()
    assert record is not None
    assert (record.key(), record.value()) == (b"key", b"body")
    assert ("message-id", sent.id.encode()) in (record.headers() or [])

    output = output_to(f"{topic}-missing")
    outcome = await output.send(message())
    await output.close()
    assert isinstance(outcome, Undeliverable)
    assert "nknown topic" in outcome.error


@pytest.mark.parametrize("connection", [{"url": "nonsense"}, {}])
async def test_a_configuration_that_no_longer_fits_is_a_dead_letter(connection: dict[str, Any]) -> None:
    config = OutputConfig.model_validate({"name": "out", "connector": CONNECTOR})
    runtime = RuntimeOutput(name="out", connector_type="http", connection=connection, config=config)
    outcome = await Output("p", runtime, Recorder(REDIS_URL)).send(message())
    assert isinstance(outcome, Undeliverable)
    assert outcome.reason == "configuration"
