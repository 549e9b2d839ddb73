"""A password that is changed in the console, while outputs and external calls use the connector: manager, PostgreSQL,
Redis and receiver are real. What the data plane holds is never too old here, so that only the push can explain that it
uses the new password."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from asgiref.sync import sync_to_async

from backend.api_calls.services import ApiCalls
from backend.apps.connectors.models import Connector
from backend.apps.connectors.services import connector_update
from backend.apps.deliveries.services import breaker_set
from backend.apps.pipelines.models import Pipeline
from backend.apps.pipelines.services import pipeline_publish
from backend.delivery.engine import DeliveryEngine
from backend.domain import json, routing
from backend.domain.breaker import BreakerPolicy
from backend.domain.message import Message, new_message_id, utc_now
from backend.domain.transforms.chain import Chain
from backend.manager_api import client as config_client
from backend.manager_api.client import ConfigClient
from backend.network.redis_client import redis_client
from backend.resilience.gate import Gate
from backend.resilience.scripts import OutputKey
from backend.telemetry.recorder import Recorder
from tests import factories
from tests.infra import REDIS_URL, SERVICE_TOKEN
from tests.integration.conftest import MANAGER_ADDRESS, RunningManager
from tests.receiver import receiver
from tests.waiting import LIMIT_SECONDS, wait_until_async

pytestmark = pytest.mark.django_db(transaction=True)

PATIENT = BreakerPolicy(errors=1000)


class Door:
    """A receiver that takes one password only."""

    def __init__(self) -> None:
        self.password = "former"

    async def answer(self, request: web.Request) -> web.Response:
        if request.headers["Authorization"] == f"Bearer {self.password}":
            return web.json_response({"welcome": True})
        return web.Response(status=401)


@pytest.fixture
async def client(running: RunningManager, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ConfigClient]:
    monkeypatch.setattr(config_client, "_RUNTIME_FRESH_SECONDS", 86400.0)
    started = ConfigClient(manager_address=MANAGER_ADDRESS, service_token=SERVICE_TOKEN, redis_url=REDIS_URL)
    await started.start()
    yield started
    await started.close()


def published(url: str, **config: Any) -> tuple[Connector, str]:
    """A connector with the former password, and a pipeline that uses it as its output."""
    workspace = factories.make_workspace()
    connector = factories.make_connector(workspace, url=url, authentication=bearer("former"))
    for step in config.get("transforms", ()):
        step["connector"] = str(connector.pk)
    output = factories.output(connector, retry={"attempts": 1})
    pipeline = factories.make_pipeline(workspace, outputs=[output], **config)
    return connector, str(pipeline_publish(pipeline=pipeline, actor=factories.admin_of(workspace)).pk)


def bearer(password: str) -> dict[str, str]:
    return {"type": "bearer", "token": password}


def rotate(connector: Connector, password: str) -> None:
    connector_update(
        connector=connector,
        actor=factories.admin_of(connector.workspace),
        name=connector.name,
        connection=connector.connection | {"authentication": bearer(password)},
    )


async def known(client: ConfigClient, *pipelines: str) -> None:
    """Whatever was pushed about their publication has arrived."""
    await wait_until_async(lambda: _all_known(client, pipelines))


async def _all_known(client: ConfigClient, pipelines: tuple[str, ...]) -> bool:
    return all(client.pipeline(pipeline) is not None for pipeline in pipelines)


async def pushed(client: ConfigClient) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        await client.connectors_change()


def message(pipeline: str) -> Message:
    message_id = new_message_id()
    return Message(message_id, pipeline, 1, message_id.encode(), b"{}", "application/json", utc_now(), ())


async def test_an_output_delivers_with_the_new_password_and_its_neighbour_keeps_its_client(
    client: ConfigClient,
) -> None:
    door, other_door = Door(), Door()
    engine = DeliveryEngine(client, Recorder(REDIS_URL), Gate(REDIS_URL), PATIENT)
    async with receiver(door.answer) as server, receiver(other_door.answer) as other_server:
        connector, pipeline = await sync_to_async(published)(server.url)
        _, neighbour = await sync_to_async(published)(other_server.url)
        await known(client, pipeline, neighbour)

        async def is_delivered(pipeline: str, position: str) -> bool:
            records = await engine.deliver(message(pipeline), position)
            return routing.BILLING in {record.topic for record in records}

        assert await is_delivered(pipeline, "0:1")
        assert await is_delivered(neighbour, "0:2")
        [kept] = engine._outputs[neighbour, "out"]._clients
        door.password = "new"
        assert not await is_delivered(pipeline, "0:3")
        await sync_to_async(rotate)(connector, "new")
        await pushed(client)
        assert await is_delivered(pipeline, "0:4")
        assert await is_delivered(neighbour, "0:5")
        assert engine._outputs[neighbour, "out"]._clients == [kept]
        await engine.close()


async def test_an_output_that_was_suspended_is_probed_with_the_new_password_unless_somebody_suspended_it(
    client: ConfigClient,
) -> None:
    """Both would be probed after a day otherwise."""
    door = Door()
    strict = BreakerPolicy(errors=1, open_seconds=86400)
    engine = DeliveryEngine(client, Recorder(REDIS_URL), Gate(REDIS_URL), strict)
    async with receiver(door.answer) as server:
        connector, pipeline = await sync_to_async(published)(server.url)
        other, suspended = await sync_to_async(published)(server.url)
        await known(client, pipeline, suspended)
        positions = itertools.count()

        async def is_delivered(pipeline: str) -> bool:
            records = await engine.deliver(message(pipeline), f"0:{next(positions)}")
            return routing.BILLING in {record.topic for record in records}

        async def is_open() -> bool:
            state = await sync_to_async(redis_client().hget)(OutputKey(pipeline, "out").breaker, "state")
            return bool(state == b"open")

        def suspend() -> None:
            actor = factories.admin_of(other.workspace)
            held = Pipeline.objects.get(pk=suspended)
            breaker_set(pipeline=held, output="out", to_open=True, seconds=86400, actor=actor)

        door.password = "new"
        assert not await is_delivered(pipeline)
        await wait_until_async(is_open)
        await sync_to_async(suspend)()
        before = server.bodies.copy()
        assert not await is_delivered(pipeline)
        await sync_to_async(rotate)(connector, "new")
        await pushed(client)
        await sync_to_async(rotate)(other, "new")
        await wait_until_async(lambda: is_delivered(pipeline))
        assert not await is_delivered(suspended)
        assert len(server.bodies) == len(before) + 1
        await engine.close()


async def test_an_external_call_is_made_with_the_new_password(client: ConfigClient) -> None:
    door = Door()
    calls = ApiCalls(REDIS_URL, gate=Gate(REDIS_URL), breaker=PATIENT, recorder=Recorder(REDIS_URL))
    call = {"type": "call", "to": "answer", "retry": {"attempts": 1}}
    async with receiver(door.answer) as server:
        connector, pipeline = await sync_to_async(published)(server.url, transforms=[call])
        await known(client, pipeline)

        async def answer() -> Any:
            runtime = await client.runtime(pipeline, 1)
            message = Message(new_message_id(), pipeline, 1, b"", b"{}", "application/json", utc_now(), ())
            resources = calls.resources(message, runtime.connectors)
            [result] = await Chain(runtime.snapshot.config.transforms).run_waiting(b"{}", resources)
            return json.loads(result.body)["answer"]

        assert await answer() == {"welcome": True}
        door.password = "new"
        await sync_to_async(rotate)(connector, "new")
        await pushed(client)
        assert await answer() == {"welcome": True}
        await calls.close()
