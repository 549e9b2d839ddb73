"""The task that reads inputs, with a real manager, Kafka and database; what it reads is the test's own."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
from asgiref.sync import sync_to_async
from rest_framework.test import APIClient

from backend.apps.connectors.models import Connector
from backend.apps.connectors.services import connector_update
from backend.apps.manager import grpc
from backend.apps.manager.leases import leases_claim
from backend.apps.manager.models import InputLease
from backend.apps.pipelines.models import Pipeline
from backend.apps.pipelines.services import (
    pipeline_delete,
    pipeline_pause,
    pipeline_publish,
    pipeline_resume,
    pipeline_update,
)
from backend.domain import json, routing
from backend.domain.capabilities import Batch, Capability, DeliveryError, InputRecord, ReadBatch, ReadStream
from backend.domain.connector import connectors
from backend.domain.stages import INPUT_BATCHING, INPUT_STREAMING, Stage
from backend.manager_api import client as config_client
from backend.network import tasks
from backend.settings import Settings, platform_settings
from spark_jobs.streaming import input_lane
from spark_jobs.streaming.input_lane import InputTask
from spark_jobs.streaming.stop_channel import StopChannel
from tests import factories
from tests.integration.conftest import RunningManager
from tests.topics import records_of
from tests.waiting import LIMIT_SECONDS, wait_until_async

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("redis_server", "pipeline_topics", "secret_keys"),
]

ROWS = 20


class Tap:
    """A batching input of ``ROWS`` numbers that the test lets flow, fail or stop."""

    def __init__(self) -> None:
        self.open_until = 0
        self.failure = ""
        self.began_at: list[Any] = []
        self._changed = asyncio.Event()

    def let_flow(self, until: int) -> None:
        self.open_until = until
        self._changed.set()

    def fail(self, failure: str) -> None:
        self.failure = failure
        self._changed.set()

    async def read(self, file: str, breakpoint: Any) -> AsyncIterator[Batch]:
        self.began_at.append(breakpoint)
        for number in range(breakpoint or 0, ROWS):
            while file != "free" and number >= self.open_until:
                if self.failure:
                    raise DeliveryError("tap", self.failure, retryable=True)
                self._changed.clear()
                await self._changed.wait()
            yield Batch([InputRecord(b'{"n": %d}' % number, identity=str(number))], number + 1)


def patched(connector: str, kind: Any, monkeypatch: pytest.MonkeyPatch, **methods: Any) -> None:
    capability: type[Capability[Any, Any]] | None = connectors.get(connector).capability(kind)
    assert capability is not None
    for name, method in methods.items():
        monkeypatch.setattr(capability, name, method)


@pytest.fixture
def tap(monkeypatch: pytest.MonkeyPatch) -> Tap:
    tap = Tap()

    async def estimate(_: Any, breakpoint: Any) -> int:
        return ROWS - (breakpoint or 0)

    patched(
        "toy_lines",
        ReadBatch,
        monkeypatch,
        read=lambda reader, breakpoint: tap.read(reader.options.file, breakpoint),
        estimate=estimate,
    )
    return tap


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_lane, "_CLAIM_SECONDS", 0.1)
    monkeypatch.setattr(input_lane, "_RENEW_SECONDS", 0.2)


@asynccontextmanager
async def running_task(stage: Stage) -> AsyncIterator[None]:
    channel = StopChannel("127.0.0.1", platform_settings().service_token)
    task = asyncio.create_task(InputTask(stage, Settings(), 0).run(channel.address))
    try:
        yield
    finally:
        channel.stop()
        await task


def reading(type: str, workspace: Any = None, **options: Any) -> Pipeline:
    workspace = workspace or factories.make_workspace()
    connections: dict[str, dict[str, Any]] = {"toy_lines": {"folder": "/nowhere"}, "toy_ticks": {"seconds": 0.05}}
    source = factories.make_connector(workspace, type=type, **connections[type])
    config: dict[str, Any] = {"input": {"type": "connector", "connector": str(source.pk), "options": options}}
    pipeline = factories.make_pipeline(workspace, **config)
    return pipeline_publish(pipeline=pipeline, actor=factories.admin_of(workspace))


async def act(action: Any, pipeline: Pipeline) -> None:
    def act() -> None:
        fresh = Pipeline.objects.get(pk=pipeline.pk)
        action(pipeline=fresh, actor=factories.admin_of(fresh.workspace))

    await sync_to_async(act)()


async def state(pipeline: Pipeline) -> dict[str, Any]:
    """As the API tells it."""

    def get() -> dict[str, Any]:
        client = APIClient()
        client.force_login(factories.admin_of(pipeline.workspace))
        answer = client.get(f"/api/v1/pipelines/{pipeline.pk}/input-state/")
        assert answer.status_code == 200
        return dict(answer.json())

    return await sync_to_async(get)()


async def until_state(pipeline: Pipeline, **expected: Any) -> dict[str, Any]:
    """The state once it has these values."""
    last: dict[str, Any] = {}

    async def reached() -> bool:
        nonlocal last
        last = await state(pipeline)
        return all(last[name] == value for name, value in expected.items())

    await wait_until_async(reached)
    return last


def produced(pipeline_id: UUID) -> list[int]:
    """The numbers that the pipeline's messages have, in order."""
    numbers = []
    for record in records_of(routing.INPUT):
        headers = dict(record.headers() or ())
        if str(pipeline_id).encode() in headers.values():
            numbers.append(next(iter(json.loads(record.value() or b"").values())))
    return numbers


async def test_a_first_load_that_is_paused_goes_on_where_it_was(running: RunningManager, tap: Tap) -> None:
    pipeline = await sync_to_async(reading)("toy_lines", file="orders")
    assert (await state(pipeline))["state"] == "idle"
    tap.let_flow(5)
    async with running_task(INPUT_BATCHING):
        shown = await until_state(pipeline, rows=5)
        assert (shown["state"], shown["first"], shown["estimate"], shown["breakpoint"]) == ("reading", True, ROWS, "5")
        await act(pipeline_pause, pipeline)
        await until_state(pipeline, state="paused")
        await wait_until_async(InputLease.objects.filter(token=None).aexists)
        tap.let_flow(ROWS)
        await act(pipeline_resume, pipeline)
        shown = await until_state(pipeline, state="idle", first=False)
    assert shown["last_batch"]["rows"] == ROWS
    assert shown["next_at"] is not None
    assert tap.began_at == [None, 5]
    assert await asyncio.to_thread(produced, pipeline.pk) == list(range(ROWS))


async def test_a_task_that_is_stopped_leaves_its_inputs_to_the_next_without_delay(
    running: RunningManager, tap: Tap
) -> None:
    pipeline = await sync_to_async(reading)("toy_lines", file="orders")
    tap.let_flow(7)
    async with running_task(INPUT_BATCHING):
        began_at = (await until_state(pipeline, rows=7))["began_at"]
    lease = await InputLease.objects.aget(pipeline=pipeline)
    assert (lease.token, lease.locked_until, lease.breakpoint) == (None, None, "7")
    tap.let_flow(9)
    async with running_task(INPUT_BATCHING):
        shown = await until_state(pipeline, rows=9)
        assert (shown["began_at"], shown["estimate"]) == (began_at, ROWS)


async def test_what_the_manager_grants_while_the_task_stops_is_returned(
    running: RunningManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = await sync_to_async(reading)("toy_lines", file="orders")
    asked, loops_have_ended, granted = threading.Event(), threading.Event(), threading.Event()

    def claim(**wanted: Any) -> list[InputLease]:
        asked.set()
        loops_have_ended.wait(LIMIT_SECONDS)
        leases = leases_claim(**wanted)
        granted.set()
        return leases

    async def cancel(*running: asyncio.Task[Any], cancel: Any = tasks.cancel) -> None:
        await cancel(*running)
        loops_have_ended.set()

    monkeypatch.setattr(grpc, "leases_claim", claim)
    async with running_task(INPUT_BATCHING):
        assert await asyncio.to_thread(asked.wait, LIMIT_SECONDS)
        monkeypatch.setattr(tasks, "cancel", cancel)
    assert await asyncio.to_thread(granted.wait, LIMIT_SECONDS)
    lease = await InputLease.objects.aget(pipeline=pipeline)
    assert (lease.began_at is not None, lease.token, lease.locked_until) == (True, None, None)


async def test_a_failure_is_shown_since_when_and_the_batch_goes_on_from_where_it_was(
    running: RunningManager, tap: Tap, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = await sync_to_async(reading)("toy_lines", file="orders")
    tap.let_flow(4)
    async with running_task(INPUT_BATCHING):
        await until_state(pipeline, rows=4)
        tap.fail("The tap is stuck.")
        shown = await until_state(pipeline, state="failing")
        assert (shown["failure"], shown["rows"], shown["breakpoint"]) == ("The tap is stuck.", 4, "4")
        since = shown["failing_since"]
        await _offer_now(pipeline)
        await wait_until_async(lambda: _is(len(tap.began_at) == 2))
        assert (await until_state(pipeline, state="failing"))["failing_since"] == since
        tap.let_flow(ROWS)
        await _offer_now(pipeline)
        shown = await until_state(pipeline, state="idle")
    assert (shown["failure"], shown["failing_since"], shown["last_batch"]["rows"]) == ("", None, ROWS)
    assert tap.began_at == [None, 4, 4]


async def _is(condition: bool) -> bool:
    return condition


async def _offer_now(pipeline: Pipeline) -> None:
    """As after the time between two batches."""
    await wait_until_async(InputLease.objects.filter(pipeline=pipeline, token=None).aexists)
    lease = await InputLease.objects.aget(pipeline=pipeline)
    await InputLease.objects.filter(pipeline=pipeline).aupdate(visible_at=lease.visible_at.replace(year=2000))


async def test_inputs_that_hang_hold_up_no_others(
    running: RunningManager, tap: Tap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_lane, "_BUSY_READERS", 2)
    monkeypatch.setattr("spark_jobs.streaming.input_reader._BUSY_SECONDS", 0.5)
    workspace = await sync_to_async(factories.make_workspace)()
    hanging = [await sync_to_async(reading)("toy_lines", workspace, file="hangs") for _ in range(4)]
    free = [await sync_to_async(reading)("toy_lines", workspace, file="free") for _ in range(3)]
    async with running_task(INPUT_BATCHING):
        for pipeline in free:
            assert (await until_state(pipeline, first=False))["last_batch"]["rows"] == ROWS
        for pipeline in hanging:
            await until_state(pipeline, state="reading", rows=0)


async def test_a_manager_that_stops_for_a_moment_costs_no_batch(running: RunningManager, tap: Tap) -> None:
    pipeline = await sync_to_async(reading)("toy_lines", file="orders")
    async with running_task(INPUT_BATCHING):
        tap.let_flow(3)
        await until_state(pipeline, rows=3)
        await running.stop()
        tap.let_flow(ROWS)
        await wait_until_async(lambda: asyncio.to_thread(lambda: len(produced(pipeline.pk)) == ROWS))
        await running.start()
        await until_state(pipeline, state="idle", first=False)
    assert tap.began_at == [None]


async def test_a_stream_is_read_until_its_pipeline_is_paused_deleted_or_has_another_input(
    running: RunningManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = asyncio.Queue[None]()

    async def close(_: Any) -> None:
        closed.put_nowait(None)

    async def is_closed() -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            await closed.get()

    async def lag(_: Any) -> int:
        return 42

    patched("toy_ticks", ReadStream, monkeypatch, close=close, lag=lag)
    pipeline = await sync_to_async(reading)("toy_ticks")
    other = await sync_to_async(reading)("toy_ticks")
    async with running_task(INPUT_STREAMING):
        shown = await until_state(pipeline, state="reading", estimate=42)
        await wait_until_async(InputLease.objects.filter(pipeline=pipeline, rows__gt=shown["rows"]).aexists)
        assert (shown["reading"], shown["first"], shown["breakpoint"]) == ("streaming", False, "")
        assert shown["began_at"] is not None
        await act(pipeline_pause, pipeline)
        await is_closed()
        await act(pipeline_resume, pipeline)
        await until_state(pipeline, state="reading")
        await act(pipeline_pause, pipeline)
        await is_closed()
        await act(pipeline_delete, pipeline)
        await sync_to_async(republished)(other, input={"type": "http"})
        await is_closed()
        assert (await state(other))["state"] == "none"


def republished(pipeline: Pipeline, **config: Any) -> None:
    actor = factories.admin_of(pipeline.workspace)
    newest = pipeline.versions.first()
    assert newest is not None
    pipeline_update(pipeline=pipeline, actor=actor, name=pipeline.name, config=newest.config | config)
    pipeline_publish(pipeline=pipeline, actor=actor)


async def test_a_stream_is_opened_again_when_its_connector_has_changed_and_only_then(
    running: RunningManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_lane, "_REFRESH_SECONDS", 0.3)
    monkeypatch.setattr(config_client, "_RUNTIME_FRESH_SECONDS", 0.0)
    opened: list[float] = []

    async def open(reader: Any) -> None:
        opened.append(reader.connection.seconds)

    patched("toy_ticks", ReadStream, monkeypatch, open=open)
    pipeline = await sync_to_async(reading)("toy_ticks")
    async with running_task(INPUT_STREAMING):
        before = (await until_state(pipeline, state="reading"))["rows"]
        await wait_until_async(InputLease.objects.filter(pipeline=pipeline, rows__gt=before + 20).aexists)
        assert opened == [0.05]
        await Connector.objects.filter(type="toy_ticks").aupdate(connection={"seconds": 0.04})
        await wait_until_async(lambda: _is(opened == [0.05, 0.04]))
        rows = (await InputLease.objects.aget(pipeline=pipeline)).rows
        await wait_until_async(InputLease.objects.filter(pipeline=pipeline, rows__gt=rows).aexists)


async def test_a_stream_is_opened_again_as_soon_as_its_own_connector_is_saved_and_for_no_other(
    running: RunningManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is fetched again in time but what was pushed."""
    monkeypatch.setattr(input_lane, "_REFRESH_SECONDS", 86400.0)
    monkeypatch.setattr(config_client, "_RUNTIME_FRESH_SECONDS", 86400.0)
    opened: list[float] = []

    async def open(reader: Any) -> None:
        opened.append(reader.connection.seconds)

    def save(pipeline: Pipeline, name: str, seconds: float) -> None:
        connector = Connector.objects.get(workspace=pipeline.workspace, type="toy_ticks")
        actor = factories.admin_of(pipeline.workspace)
        connector_update(connector=connector, actor=actor, name=name, connection={"seconds": seconds})

    patched("toy_ticks", ReadStream, monkeypatch, open=open)
    pipeline = await sync_to_async(reading)("toy_ticks")
    neighbour = await sync_to_async(reading)("toy_ticks")
    async with running_task(INPUT_STREAMING):
        before = await until_state(pipeline, state="reading")
        await until_state(neighbour, state="reading")
        await wait_until_async(InputLease.objects.filter(pipeline=pipeline, rows__gt=before["rows"]).aexists)
        assert opened == [0.05, 0.05]
        await sync_to_async(save)(neighbour, "Renamed", 0.05)
        await sync_to_async(save)(pipeline, "Ticks", 0.04)
        await wait_until_async(lambda: _is(len(opened) > 2))
        rows = (await InputLease.objects.aget(pipeline=pipeline)).rows
        await wait_until_async(InputLease.objects.filter(pipeline=pipeline, rows__gt=rows).aexists)
    assert opened == [0.05, 0.05, 0.04]


async def test_a_stream_that_fails_says_why_until_it_works(
    running: RunningManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_jobs.streaming.input_reader._REOPEN_SECONDS", 0.2)
    broken = True

    async def open(_: Any) -> None:
        if broken:
            raise DeliveryError("clock", "The clock stands still.", retryable=True)

    patched("toy_ticks", ReadStream, monkeypatch, open=open)
    pipeline = await sync_to_async(reading)("toy_ticks")
    async with running_task(INPUT_STREAMING):
        shown = await until_state(pipeline, state="failing", failure="The clock stands still.")
        assert shown["failing_since"] is not None
        broken = False
        assert (await until_state(pipeline, state="reading"))["failing_since"] is None


async def test_only_members_of_the_workspace_see_the_state(running: RunningManager) -> None:
    pipeline = await sync_to_async(reading)("toy_lines", file="orders")

    def status() -> int:
        client = APIClient()
        client.force_login(factories.admin_of(factories.make_workspace()))
        return client.get(f"/api/v1/pipelines/{pipeline.pk}/input-state/").status_code

    assert await sync_to_async(status)() == 404
