"""Two versions of a pipeline in flight at one output, and connectors that fail in ways they should not."""

import asyncio
import uuid
from pathlib import Path
from typing import Any

from aiohttp import web

from backend.delivery.outcomes import Delivered, Outcome, Undeliverable
from backend.delivery.output import Output
from backend.domain.breaker import BreakerPolicy
from backend.domain.connector import RuntimeConnector
from backend.domain.message import Message, new_message_id, utc_now
from backend.domain.pipeline import OutputConfig, RuntimeOutput
from backend.resilience.gate import Gate
from backend.telemetry.recorder import Recorder
from tests.infra import REDIS_URL
from tests.receiver import receiver

ONCE = {"attempts": 1}


def runtime(type: str, connection: dict[str, Any], **config: Any) -> RuntimeOutput:
    config = {"name": "out", "connector": str(uuid.uuid4()), "retry": ONCE} | config
    return RuntimeOutput(
        connector=RuntimeConnector(type=type, connection=connection), config=OutputConfig.model_validate(config)
    )


def output_of(gate: Gate, first: RuntimeOutput, breaker: BreakerPolicy | None = None) -> Output:
    breaker = breaker or BreakerPolicy(errors=1000)
    return Output(str(uuid.uuid4()), first, recorder=Recorder(REDIS_URL), gate=gate, breaker=breaker)


async def send(output: Output, config: RuntimeOutput, version: int, sent: Message, position: str) -> Outcome:
    return await output.send(output.accept(config, version, sent, position))


def message(body: bytes, key: bytes = b"") -> Message:
    message_id = new_message_id()
    return Message(message_id, "p", 1, key or message_id.encode(), body, "application/json", utc_now(), ())


async def test_a_keys_order_holds_across_versions_and_neither_closes_the_others_client(gate: Gate) -> None:
    repaired = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        if await request.read() == b"1":
            await repaired.wait()
        return web.Response()

    async with receiver(answer) as inbox:
        former = runtime("http", {"url": f"{inbox.url}former"})
        newer = runtime("http", {"url": f"{inbox.url}newer"})
        output = output_of(gate, former)
        sends = [
            asyncio.ensure_future(send(output, version_of, version, message(body, b"key"), f"0:{body!r}"))
            for version_of, version, body in ((former, 1, b"1"), (newer, 2, b"2"), (former, 1, b"3"))
        ]
        other = await send(output, newer, 2, message(b"other"), "0:9")
        assert isinstance(other, Delivered)
        assert b"2" not in inbox.bodies
        repaired.set()
        assert all(isinstance(outcome, Delivered) for outcome in await asyncio.gather(*sends))
        await output.close()
    assert [body for body in inbox.bodies if body != b"other"] == [b"1", b"2", b"3"]


async def test_two_versions_share_one_concurrency_and_the_newest_decides(gate: Gate) -> None:
    running = most = 0
    three_are_running = asyncio.Event()

    async def count(request: web.Request) -> web.Response:
        nonlocal running, most
        if await request.read() == b'"first"':
            return web.Response()
        running += 1
        most = max(most, running)
        if running == 3:
            three_are_running.set()
        await three_are_running.wait()
        await asyncio.sleep(0.02)
        running -= 1
        return web.Response()

    async with receiver(count) as inbox:
        former = runtime("http", {"url": f"{inbox.url}former"}, concurrency=8)
        newer = runtime("http", {"url": f"{inbox.url}newer"}, concurrency=3)
        output = output_of(gate, former)
        await send(output, newer, 2, message(b'"first"'), "0:0")
        sends = [send(output, former if n % 2 else newer, 1 + n % 2, message(b"{}"), f"0:{n}") for n in range(1, 40)]
        await asyncio.gather(*sends)
        await output.close()
    assert most == 3


async def test_an_exception_that_a_connector_should_not_raise_keeps_no_place_and_tells_no_secret(
    gate: Gate, tmp_path: Path
) -> None:
    to_file = runtime("toy_file", {"folder": str(tmp_path)}, options={"file": "out"}, queue=2, concurrency=1)
    output = output_of(gate, to_file, BreakerPolicy(errors=3, open_seconds=60))
    for n in range(2):
        outcome = await send(output, to_file, 1, message(b'"explode"', b"key"), f"0:{n}")
        assert isinstance(outcome, Undeliverable)
        assert (outcome.reason, outcome.retryable) == ("internal", True)
        assert "s3cret" not in outcome.error + outcome.attempts[0].error
        assert "KeyError" in outcome.error
    # Places, slot and key are free again.
    assert output.in_flight == 0
    assert isinstance(await send(output, to_file, 1, message(b'"fine"', b"key"), "0:5"), Delivered)
    # The breaker counts such failures as any other.
    await send(output, to_file, 1, message(b'"explode"'), "0:6")
    await gate.settled()
    refused = await send(output, to_file, 1, message(b'"fine"'), "0:7")
    assert isinstance(refused, Undeliverable)
    assert refused.reason == "breaker_open"
    await output.close()


async def test_clients_of_former_versions_are_closed_once_nobody_uses_them(gate: Gate) -> None:
    async def ok(_: web.Request) -> web.Response:
        return web.Response()

    async with receiver(ok) as inbox:
        versions = [runtime("http", {"url": f"{inbox.url}{n}"}) for n in range(3)]
        output = output_of(gate, versions[0])
        for number, version in enumerate(versions, 1):
            await send(output, version, number, message(b"{}"), f"0:{number}")
        assert len(output._clients) == 3
        output.close_idle_clients(output.last_used + 61)
        assert [client.runtime for client in output._clients] == [versions[2]]
        await output.close()
