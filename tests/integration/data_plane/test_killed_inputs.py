"""Tasks that read inputs, killed after every step: nothing is lost, and what is read again is the same message."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.utils import timezone

from backend.apps.connectors.models import Connector
from backend.apps.connectors.services import connector_update
from backend.apps.manager.models import InputLease
from backend.apps.pipelines.models import Pipeline
from backend.apps.pipelines.services import pipeline_publish
from backend.domain import routing
from backend.domain.message import MESSAGE_ID
from tests import factories
from tests.infra import Server
from tests.integration.conftest import RunningManager
from tests.integration.kafka_ends import end_offset
from tests.integration.task_process import TaskProcess
from tests.topics import records_of
from tests.waiting import wait_until_async

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def start(redis_server: Server, pipeline_topics: None, secret_keys: None) -> int:
    """The offset of the first message."""
    return end_offset(routing.INPUT)


@pytest.fixture(scope="module")
def batching() -> Iterator[TaskProcess]:
    yield from _task("input_batching")


@pytest.fixture(scope="module")
def streaming() -> Iterator[TaskProcess]:
    yield from _task("input_streaming")


def _task(stage: str) -> Iterator[TaskProcess]:
    task = TaskProcess(stage)
    yield task
    task.close()


@sync_to_async
def published(type: str, connection: dict[str, Any], **source: Any) -> Pipeline:
    workspace = factories.make_workspace()
    connector = factories.make_connector(workspace, type=type, **connection)
    source = {"type": "connector", "connector": str(connector.pk), **source}
    pipeline = factories.make_pipeline(workspace, input=source)
    return pipeline_publish(pipeline=pipeline, actor=factories.admin_of(workspace))


@sync_to_async
def changed(pipeline: Pipeline, connection: dict[str, Any]) -> None:
    connector = Connector.objects.get(workspace=pipeline.workspace_id, type="toy_journal")
    actor = factories.admin_of(connector.workspace)
    connector_update(connector=connector, actor=actor, name=connector.name, connection=connection)


async def free(pipeline: Pipeline) -> None:
    """As when the time is over for which the lease of a reader without a heartbeat is locked."""
    await InputLease.objects.filter(pipeline=pipeline).aupdate(locked_until=timezone.now(), visible_at=timezone.now())


@sync_to_async
def ids_of(start: int) -> dict[int, set[str]]:
    """The ids of the messages of each number."""
    ids: dict[int, set[str]] = {}
    for record in records_of(routing.INPUT, start):
        number = json.loads(record.value() or b"")["n"]
        ids.setdefault(number, set()).add(str(dict(record.headers() or ())[MESSAGE_ID]))
    return ids


async def test_batches(start: int, running: RunningManager, batching: TaskProcess, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    options = {"file": file.name, "at_a_time": 2}
    pipeline = await published("toy_lines", {"folder": str(tmp_path)}, every_seconds=1, options=options)
    lease = InputLease.objects.filter(pipeline=pipeline)
    lines = 0
    for step in ("claimed", "opened", "sent", "acknowledged", "completed"):
        with file.open("a") as appended:
            appended.writelines(f'{{"n": {number}}}\n' for number in range(lines, lines + 5))
        lines += 5
        assert await batching.killed_after(step) == -signal.SIGKILL, step
        await free(pipeline)
    assert (await lease.aget()).breakpoint == str(lines)
    with file.open("a") as appended:
        appended.write(f'{{"n": {lines}}}\n')
    before = await sync_to_async(end_offset)(routing.INPUT)
    async with batching.running():
        await wait_until_async(lease.filter(breakpoint=str(lines + 1)).aexists)
    assert await sync_to_async(end_offset)(routing.INPUT) == before + 1
    ids = await ids_of(start)
    assert sorted(ids) == list(range(lines + 1))
    assert all(len(same) == 1 for same in ids.values())


async def test_streams(start: int, running: RunningManager, streaming: TaskProcess) -> None:
    entries = [f'{{"n": {number}}}' for number in range(20)]
    pipeline = await published("toy_journal", {"entries": entries}, mode="stream", options={})
    lease = InputLease.objects.filter(pipeline=pipeline)
    for step in ("claimed", "opened", "sent", "acknowledged", "returned", "recorded"):
        assert await streaming.killed_after(step) == -signal.SIGKILL, step
        await free(pipeline)
    recorded = int((await lease.aget()).breakpoint)
    entries.append('{"n": 20}')
    await changed(pipeline, {"entries": entries})
    before = await sync_to_async(end_offset)(routing.INPUT)
    async with streaming.running():
        await wait_until_async(lease.filter(breakpoint=str(len(entries))).aexists)
    assert await sync_to_async(end_offset)(routing.INPUT) == before + len(entries) - recorded
    ids = await ids_of(start)
    assert sorted(ids) == list(range(len(entries)))
    assert all(len(same) == 1 for same in ids.values())
