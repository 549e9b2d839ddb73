"""Where parts wait, in a folder and in MongoDB; object stores are PyArrow's own."""

import json
import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from asgiref.sync import sync_to_async

from backend.apps.exports.models import StagedPart
from backend.exports import staging_store as stores
from backend.exports.staging_store import staging_store
from tests import mongodb
from tests.integration.conftest import RunningManager
from tests.integration.exports.stores import visible
from tests.integration.exports.test_exporter import committed, prepared
from tests.integration.task_process import TaskProcess
from tests.waiting import wait_until_async

LOGIN = f"{mongodb.USER}:{mongodb.PASSWORD}@{mongodb.HOST}:{mongodb.PORT}"


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    server = mongodb.mongodb_server()
    server.start()
    yield f"mongodb://{LOGIN}/staging?authSource=admin&directConnection=true"
    server.stop()


@pytest.fixture(params=["folder", "mongodb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path) if request.param == "folder" else str(request.getfixturevalue("database"))


def test_a_part_is_there_as_a_whole_until_it_is_deleted(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "_PIECE_BYTES", 1000)
    store, content = staging_store(url), os.urandom(2500)
    for _ in range(2):  # what is staged again is written again
        store.write("pipeline/out/1/0-0-9.parquet", content)
    store.write("pipeline/out/1/empty", b"")
    other = staging_store(url)
    assert other.read("pipeline/out/1/0-0-9.parquet") == content
    assert other.read("pipeline/out/1/empty") == b""
    assert list(other.older_than(3600)) == []
    assert sorted(other.older_than(-1)) == ["pipeline/out/1/0-0-9.parquet", "pipeline/out/1/empty"]
    other.delete(["pipeline/out/1/0-0-9.parquet", "pipeline/out/1/empty", "absent"])
    assert list(other.older_than(-1)) == []
    with pytest.raises(FileNotFoundError):
        store.read("pipeline/out/1/0-0-9.parquet")


def test_pieces_of_a_writer_that_died_are_found(database: str) -> None:
    with mongodb.direct() as client:
        client.staging.pieces.insert_one({"path": "died", "at": datetime(2026, 1, 1, tzinfo=UTC), "data": b"x"})
    store = staging_store(database)
    with pytest.raises(FileNotFoundError):
        store.read("died")
    assert list(store.older_than(3600)) == ["died"]
    store.delete(["died"])
    assert list(store.older_than(3600)) == []


def test_a_server_that_cannot_be_used_is_an_error_of_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "_ANSWER_SECONDS", 1)
    with pytest.raises(OSError, match="MongoDB"):
        staging_store("mongodb://127.0.0.1:1/staging").read("absent")
    with pytest.raises(OSError, match="names no database"):
        staging_store("mongodb://127.0.0.1:1").read("absent")


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("redis_server", "pipeline_topics", "secret_keys")
async def test_files_hold_every_message_once_that_waited_in_mongodb(
    running: RunningManager, tmp_path: Path, database: str
) -> None:
    exporter = TaskProcess("exporter", HEADRACE_STAGING_URL=database)
    try:
        pipeline, ids = await prepared(tmp_path, 1200, rows=1000, minutes=0.1, name="{number}")
        assert await exporter.killed_after("parts_written") == -signal.SIGKILL
        async with exporter.running():
            await committed(pipeline, 2)
            await wait_until_async(sync_to_async(lambda: not StagedPart.objects.exists()))
    finally:
        exporter.close()
    read = [json.loads(line)["_message_id"] for path in visible(tmp_path) for line in path.read_bytes().splitlines()]
    assert sorted(read) == sorted(ids)
