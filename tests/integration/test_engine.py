"""The engine: outputs side by side, and what is recorded of each message."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from backend.delivery.engine import DeliveryEngine
from backend.domain import routing
from backend.domain.breaker import BreakerPolicy
from backend.domain.connector import RuntimeConnector
from backend.domain.message import (
    DEAD_OUTPUT,
    DEAD_REASON,
    REDELIVERY,
    REDELIVERY_OUTPUT,
    Message,
    new_message_id,
    utc_now,
)
from backend.domain.pipeline import OutputConfig, PipelineConfig, PipelineSnapshot
from backend.domain.records import RESOLVED, Record
from backend.manager_api.client import RuntimePipeline
from backend.resilience.gate import Gate
from backend.telemetry.recorder import Recorder
from tests.infra import REDIS_URL, Server
from tests.receiver import receiver

WORKSPACE = uuid.uuid4()


class Known:
    """The configuration client's one question, answered from memory."""

    def __init__(self) -> None:
        self.pipelines: dict[str, RuntimePipeline] = {}

    async def runtime(self, pipeline_id: str, version: int) -> RuntimePipeline:
        return self.pipelines[pipeline_id]

    def add(self, **urls: str) -> str:
        """A pipeline with an output for each URL."""
        pipeline = uuid.uuid4()
        configs = [
            OutputConfig.model_validate(
                {"name": name, "connector": str(uuid.uuid4()), "queue": 5, "concurrency": 5, "retry": {"attempts": 1}}
            )
            for name in urls
        ]
        connectors = {
            config.connector: RuntimeConnector(type="http", connection={"url": urls[config.name]}) for config in configs
        }
        snapshot = PipelineSnapshot(
            id=pipeline, workspace_id=WORKSPACE, version=1, accepting=True, config=PipelineConfig(outputs=configs)
        )
        self.pipelines[str(pipeline)] = RuntimePipeline.of(snapshot, connectors)
        return str(pipeline)


@pytest.fixture
def known() -> Known:
    return Known()


@pytest.fixture
async def engine(redis_server: Server, known: Known) -> AsyncIterator[DeliveryEngine]:
    config: Any = known
    started = DeliveryEngine(config, Recorder(REDIS_URL), Gate(REDIS_URL), BreakerPolicy(errors=1000))
    yield started
    await started.close()


def message(pipeline: str, **extra: str) -> Message:
    message_id = new_message_id()
    return Message(message_id, pipeline, 1, message_id.encode(), b"{}", "application/json", utc_now(), (), extra)


def by_topic(records: list[Record], topic: str) -> list[Record]:
    return [record for record in records if record.topic == topic]


async def ok(_: web.Request) -> web.Response:
    return web.Response()


async def refuse(_: web.Request) -> web.Response:
    return web.Response(status=400, text="no")


async def test_each_output_is_billed_or_a_dead_letter_by_itself(engine: DeliveryEngine, known: Known) -> None:
    async with receiver(ok) as good, receiver(refuse) as bad:
        sent = message(known.add(good=good.url, bad=bad.url))
        records = await engine.deliver(sent, "0:1")
    [billed] = by_topic(records, routing.BILLING)
    event = json.loads(billed.value)
    assert (event["message_id"], event["output"], event["bytes"]) == (sent.id, "good", 2)
    assert event["workspace_id"] == str(WORKSPACE)
    [dead] = by_topic(records, routing.DEAD_LETTER)
    headers = dict(dead.headers)
    assert (headers[DEAD_OUTPUT], headers[DEAD_REASON]) == (b"bad", b"http_400")
    failed = [json.loads(record.value) for record in by_topic(records, routing.ATTEMPTS)]
    assert ("bad", "400", "no") in [(a["output"], a["status"], a["response"]) for a in failed]


async def test_a_repeat_is_billed_only_when_it_is_the_same_read(engine: DeliveryEngine, known: Known) -> None:
    async with receiver(ok) as good:
        sent = message(known.add(good=good.url))
        billed = [len(by_topic(await engine.deliver(sent, at), routing.BILLING)) for at in ("0:1", "0:1", "1:7")]
    assert billed == [1, 1, 0]  # the second was never committed, the third came from upstream
    assert len(good.bodies) == 1


async def test_a_redelivery_goes_to_its_output_and_is_resolved_when_it_arrives(
    engine: DeliveryEngine, known: Known
) -> None:
    async with receiver(ok) as good, receiver(refuse) as bad:
        pipeline = known.add(good=good.url, bad=bad.url)
        arrived = await engine.deliver(message(pipeline, **{REDELIVERY: "d1", REDELIVERY_OUTPUT: "good"}), "0:1")
        failed = await engine.deliver(message(pipeline, **{REDELIVERY: "d2", REDELIVERY_OUTPUT: "bad"}), "0:2")
    assert [dict(r.headers).get(RESOLVED) for r in by_topic(arrived, routing.DEAD_LETTER)] == [b"d1"]
    [again] = by_topic(failed, routing.DEAD_LETTER)
    assert RESOLVED not in dict(again.headers)
    assert REDELIVERY not in dict(again.headers)
    assert (len(good.bodies), len(bad.bodies)) == (1, 1)
    [gone] = await engine.deliver(message(pipeline, **{REDELIVERY: "d3", REDELIVERY_OUTPUT: "removed"}), "0:3")
    assert dict(gone.headers)[DEAD_REASON] == b"unknown_output"


async def test_a_slow_output_makes_room_only_when_others_need_it(engine: DeliveryEngine, known: Known) -> None:
    repaired = asyncio.Event()

    async def slow(_: web.Request) -> web.Response:
        await repaired.wait()
        return web.Response()

    async with receiver(slow) as hanging, receiver(ok) as good:
        slowly, quickly = known.add(out=hanging.url), known.add(out=good.url)
        sends = [asyncio.ensure_future(engine.deliver(message(slowly), f"0:{n}")) for n in range(30)]
        await hanging.received(5)
        engine.relieve()
        await asyncio.sleep(0)
        assert not any(one.done() for one in sends)  # it is alone, so it may fill the window
        await engine.deliver(message(quickly), "0:99")
        engine.relieve()
        repaired.set()
        records = [record for one in await asyncio.gather(*sends) for record in one]
    reasons = [dict(record.headers)[DEAD_REASON] for record in by_topic(records, routing.DEAD_LETTER)]
    assert reasons == [b"output_saturated"] * 25
    assert len(hanging.bodies) == 5
