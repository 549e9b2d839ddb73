"""The exporter as a process: from the messages that outputs hand over to files, whatever dies on the way."""

import gzip
import hashlib
import json
import os
import signal
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.utils import timezone

from backend.apps.connectors.models import Connector
from backend.apps.exports import services
from backend.apps.exports.forming import empty_files_form
from backend.apps.exports.models import Export, StagedPart
from backend.apps.exports.services import export_abort, export_retry
from backend.apps.pipelines.models import Pipeline
from backend.apps.pipelines.services import pipeline_delete, pipeline_pause, pipeline_publish
from backend.apps.workspaces.models import User, Workspace
from tests import factories
from tests.infra import FILES_ROOT, VAR
from tests.integration.conftest import RunningManager
from tests.integration.exports.stores import hand_over, message_of, stage_from_here, storing_pipeline, visible
from tests.integration.task_process import TaskProcess
from tests.waiting import wait_until_async

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("redis_server", "pipeline_topics", "secret_keys"),
]

STEPS = (
    *("read", "parts_written", "parts_registered"),
    *(
        "claimed",
        "swept",
        "begun",
        "upload_recorded",
        "upload_aborted",
        "slice_written",
        "written",
        "manifest_recorded",
    ),
    *("file_committed", "manifest_committed", "marker_committed", "completed", "parts_deleted", "parts_forgotten"),
)


@pytest.fixture(autouse=True)
def short_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a killed process holds is free ten of its renewals later, and not only after a minute."""
    monkeypatch.setattr(services, "LOCK", timedelta(seconds=5))


@pytest.fixture(scope="module")
def exporter() -> Iterator[TaskProcess]:
    started = TaskProcess("exporter")
    yield started
    started.close()


async def committed(pipeline: Pipeline, number: int) -> list[Export]:
    """Once there are so many, and none is open."""
    exports = Export.objects.filter(pipeline_id=pipeline.pk)

    async def all_committed() -> bool:
        done = await exports.filter(state=Export.State.COMMITTED).acount()
        return done == number == await exports.acount()

    await wait_until_async(all_committed)
    return [export async for export in exports.order_by("number")]


@sync_to_async
def prepared(folder: Path, messages: int, **files: Any) -> tuple[Pipeline, list[str]]:
    """A pipeline whose output has been handed so many messages; their ids."""
    stage_from_here()
    pipeline = storing_pipeline(folder, **files)
    handed = [message_of(pipeline, {"number": number, "text": 'ação, "ü"\nand more'}) for number in range(messages)]
    hand_over(pipeline, handed)
    return pipeline, [message.id for message in handed]


async def test_files_hold_every_message_once(running: RunningManager, exporter: TaskProcess, tmp_path: Path) -> None:
    pipeline, ids = await prepared(tmp_path, 2500, rows=1000, minutes=0.1, compression="gzip", name="day/{number}")
    async with exporter.running():
        exports = await committed(pipeline, 3)
        await wait_until_async(sync_to_async(lambda: not StagedPart.objects.exists()))
    assert [export.rows for export in exports] == [1000, 1000, 500]
    assert [str(path.relative_to(tmp_path)) for path in visible(tmp_path)] == [
        f"day/{number:08d}.jsonl.gz" for number in (1, 2, 3)
    ]
    read = [
        json.loads(line)["_message_id"]
        for path in visible(tmp_path)
        for line in gzip.decompress(path.read_bytes()).splitlines()
    ]
    assert read == ids  # of one partition, in their order
    for export, path in zip(exports, visible(tmp_path), strict=True):
        assert export.manifest is not None
        assert export.manifest["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
        assert export.manifest["bytes"] == path.stat().st_size
        assert export.manifest["rows"] == export.rows
        assert export.preview is not None
        assert export.preview["rows"][0][-1] == 'ação, "ü"\nand more'
    assert not [path for path in (VAR / "staging" / str(pipeline.pk)).rglob("*") if path.is_file()]


async def test_a_file_without_messages_is_stored_with_its_header(
    running: RunningManager, exporter: TaskProcess, tmp_path: Path
) -> None:
    columns = [{"path": "id"}, {"path": "total"}]
    yearly = {"schedule": "0 0 1 1 *", "empty_files": True, "name": "{number}", "message_fields": False}
    pipeline, _ = await prepared(tmp_path, 0, format="csv", columns=columns, marker="{stem}.done", **yearly)
    await Pipeline.objects.filter(pk=pipeline.pk).aupdate(published_at=timezone.now() - timedelta(days=400))
    await sync_to_async(empty_files_form)()
    async with exporter.running():
        [export] = await committed(pipeline, 1)
    assert (tmp_path / "00000001.csv").read_bytes() == b"id,total\r\n"
    assert (tmp_path / "00000001.done").exists()
    assert export.manifest is not None
    assert (export.manifest["rows"], export.manifest["first_message_id"]) == (0, "")


@pytest.mark.parametrize("type", ["local_files", pytest.param("toy_store", marks=pytest.mark.long)])
async def test_a_kill_after_any_step_loses_and_doubles_nothing(
    running: RunningManager, exporter: TaskProcess, tmp_path: Path, type: str
) -> None:
    if type == "local_files":
        tmp_path = FILES_ROOT / str(uuid.uuid4())
        tmp_path.mkdir(parents=True)
    pipeline, ids = await prepared(
        tmp_path, 2300, type=type, rows=1000, minutes=0.1, manifest_file=True, marker="{stem}.done", name="{number}"
    )
    for step in STEPS:
        assert await exporter.killed_after(step) == -signal.SIGKILL, step
        # What a minute without heartbeats would do.
        await Export.objects.filter(locked_until__isnull=False).aupdate(locked_until=timezone.now())
    async with exporter.running():
        exports = await committed(pipeline, 3)
    assert sum(export.rows for export in exports) == len(ids)
    read = Counter(
        json.loads(line)["_message_id"] for path in visible(tmp_path) for line in path.read_text().splitlines()
    )
    assert len(visible(tmp_path)) == 3
    assert read == Counter(ids)
    for path in visible(tmp_path):
        manifest = json.loads(path.with_name(f"{path.name}.manifest.json").read_text())
        assert manifest["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
        assert path.with_suffix(".done").read_bytes() == b""


async def test_a_marker_that_cannot_be_stored_keeps_the_export_open(
    running: RunningManager, exporter: TaskProcess, tmp_path: Path
) -> None:
    (tmp_path / "00000001.done").mkdir()  # where the marker is to be
    pipeline, ids = await prepared(tmp_path, 3, rows=3, name="{number}", marker="{stem}.done")
    exports = Export.objects.filter(pipeline_id=pipeline.pk)
    async with exporter.running():
        await wait_until_async(exports.filter(state=Export.State.FAILED).aexists)
        assert len((tmp_path / "00000001.jsonl").read_text().splitlines()) == len(ids)
        (tmp_path / "00000001.done").rmdir()
        await exports.aupdate(due_at=timezone.now())
        await committed(pipeline, 1)
    assert (tmp_path / "00000001.done").read_bytes() == b""


async def test_a_store_that_is_down_is_tried_again(
    running: RunningManager, exporter: TaskProcess, tmp_path: Path
) -> None:
    (tmp_path / "down").touch()
    pipeline, ids = await prepared(tmp_path, 3, rows=3, name="{number}")
    exports = Export.objects.filter(pipeline_id=pipeline.pk)
    async with exporter.running():
        await wait_until_async(exports.filter(state=Export.State.FAILED).aexists)
        failed = await exports.aget()
        assert (failed.reason, failed.error, failed.due_at is not None) == ("connection", "The store is down.", True)
        (tmp_path / "down").unlink()
        await exports.aupdate(due_at=timezone.now())
        await committed(pipeline, 1)
    assert [len(path.read_text().splitlines()) for path in visible(tmp_path)] == [len(ids)]


async def test_what_a_store_refuses_waits_for_a_person(
    running: RunningManager, exporter: TaskProcess, tmp_path: Path
) -> None:
    (tmp_path / "refuse").touch()
    pipeline, ids = await prepared(tmp_path, 2, rows=1, name="{number}")
    exports = Export.objects.filter(pipeline_id=pipeline.pk)
    actor = await sync_to_async(factories.admin_of)(await Workspace.objects.aget(pk=pipeline.workspace_id))
    async with exporter.running():
        await wait_until_async(exports.filter(number=2, state=Export.State.FAILED, due_at=None).aexists)
        aborted = await sync_to_async(export_abort)(export=await exports.aget(number=1), actor=actor)
        assert aborted.state == Export.State.ABORTED
        (tmp_path / "refuse").unlink()
        for export in [export async for export in exports]:
            await sync_to_async(export_retry)(export=export, actor=actor, use_current_version=False)
        await committed(pipeline, 2)
    read = [json.loads(path.read_text())["_message_id"] for path in visible(tmp_path)]
    assert sorted(read) == sorted(ids)


async def test_what_killed_writers_and_deleted_pipelines_left_in_a_store_is_removed(
    running: RunningManager, exporter: TaskProcess
) -> None:
    folder = FILES_ROOT / str(uuid.uuid4())
    folder.mkdir(parents=True)

    def unfinished() -> list[Path]:
        return list(folder.rglob("*.headrace-unfinished"))

    lost, _ = await prepared(folder, 3, type="local_files", rows=3, name="a/{number}")
    assert await exporter.killed_after("begun") == -signal.SIGKILL  # nobody knows of this upload
    [unrecorded] = unfinished()
    await Export.objects.aupdate(locked_until=timezone.now())
    assert await exporter.killed_after("upload_recorded") == -signal.SIGKILL
    assert len(unfinished()) == 2
    old = time.time() - 2 * 86_400
    os.utime(unrecorded, (old, old))
    given_up = await Export.objects.aget(pipeline_id=lost.pk)
    # As after its last automatic try.
    await Export.objects.filter(pk=given_up.pk).aupdate(
        state=Export.State.ABORTED, due_at=None, locked_until=None, token=None, closed_at=timezone.now()
    )
    pipeline = await sync_to_async(another_output_of)(lost, given_up)
    await sync_to_async(pipeline_pause)(pipeline=lost, actor=await sync_to_async(actor_of)(lost))
    await sync_to_async(pipeline_delete)(pipeline=lost, actor=await sync_to_async(actor_of)(lost))
    await sync_to_async(hand_over)(pipeline, [message_of(pipeline, 1)])
    async with exporter.running():
        await wait_until_async(Export.objects.filter(pipeline_id=pipeline.pk, state="committed").aexists)
    assert unfinished() == []
    assert (await Export.objects.aget(pk=given_up.pk)).upload is None


def actor_of(pipeline: Pipeline) -> User:
    return factories.admin_of(pipeline.workspace)


def another_output_of(pipeline: Pipeline, export: Export) -> Pipeline:
    """Of another pipeline, to the connector of that export, into the same folder."""
    store = Connector.objects.get(pk=export.connector_id)
    output = factories.output(
        store, name="files", files={"message_fields": True, "rows": 1, "name": "a/other-{number}"}
    )
    other = factories.make_pipeline(pipeline.workspace, outputs=[output])
    return pipeline_publish(pipeline=other, actor=actor_of(pipeline))


async def test_an_abort_removes_what_was_written(
    running: RunningManager, exporter: TaskProcess, tmp_path: Path
) -> None:
    pipeline, _ = await prepared(tmp_path, 3, rows=3, name="{number}")
    exports = Export.objects.filter(pipeline_id=pipeline.pk)
    actor = await sync_to_async(factories.admin_of)(await Workspace.objects.aget(pk=pipeline.workspace_id))
    assert await exporter.killed_after("upload_recorded") == -signal.SIGKILL
    assert len(list((tmp_path / ".uploads").iterdir())) == 1
    await sync_to_async(export_abort)(export=await exports.aget(), actor=actor)
    async with exporter.running():
        await wait_until_async(exports.filter(upload__isnull=True).aexists)
    assert visible(tmp_path) == []
    assert list((tmp_path / ".uploads").iterdir()) == []
    assert (await exports.aget()).state == Export.State.ABORTED
