"""A large table that several readers read in parts: they are killed, stopped and take turns."""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.utils import timezone
from rest_framework.test import APIClient

from backend.apps.manager import grpc
from backend.apps.manager.leases import leases_claim
from backend.apps.manager.models import InputLease
from backend.apps.pipelines.models import Pipeline
from backend.apps.pipelines.services import pipeline_pause, pipeline_publish, pipeline_resume
from backend.connectors.parts.rows import reader as row_reader
from backend.domain import routing
from backend.domain.message import MESSAGE_ID
from backend.domain.stages import INPUT_BATCHING
from backend.settings import Settings, platform_settings
from spark_jobs.streaming import input_lane, input_reader
from spark_jobs.streaming.input_lane import InputTask
from spark_jobs.streaming.stop_channel import StopChannel
from tests import factories
from tests.integration.conftest import RunningManager
from tests.integration.connectors.sql.databases import Postgresql, pipe
from tests.integration.kafka_ends import end_offset
from tests.topics import records_of
from tests.waiting import wait_until_async

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("redis_server", "pipeline_topics", "secret_keys"),
]

PARTS = 4
STALLS_AFTER = 1_000_000
"""Bytes that a connection through the gate passes before it is opened: some batches, and less than a part."""


class Gate:
    """A way to the database on which every connection stalls in the middle of a part until ``open`` is set."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.open = asyncio.Event()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        yield server.sockets[0].getsockname()[1]
        server.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        asking = asyncio.create_task(pipe(reader, back))
        passed = 0
        while passed < STALLS_AFTER and (data := await there.read(10_000)):
            writer.write(data)
            passed += len(data)
        if passed >= STALLS_AFTER:
            await self.open.wait()
        await pipe(there, writer)
        await asking


@asynccontextmanager
async def process(slot: int, large_table_rows: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """The task as a process, once it runs."""
    channel = StopChannel("127.0.0.1", platform_settings().service_token)
    command = [sys.executable, "-m", "tests.integration.input_process", str(channel.address[1]), str(slot)]
    started = await asyncio.create_subprocess_exec(*command, str(large_table_rows))
    try:
        await wait_until_async(lambda: asyncio.to_thread(lambda: channel.report(slot)))
        yield started
    finally:
        channel.stop()
        await started.wait()
        channel.close()


@asynccontextmanager
async def task() -> AsyncIterator[None]:
    """The task in this process."""
    channel = StopChannel("127.0.0.1", platform_settings().service_token)
    running = asyncio.create_task(InputTask(INPUT_BATCHING, Settings(), 0).run(channel.address))
    try:
        yield
    finally:
        channel.stop()
        await running
        channel.close()


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_reader, "_LARGE_TABLE_ROWS", 1000)
    monkeypatch.setattr(input_lane, "_CLAIM_SECONDS", 0.05)
    monkeypatch.setattr(input_lane, "_RENEW_SECONDS", 0.2)


class TestPostgresqlParts(Postgresql):
    def filled(self, rows: int) -> str:
        table = self.table()
        self.run(f"INSERT INTO {table} (id, text) SELECT n, repeat('x', 100) FROM generate_series(1, {rows}) AS n")
        self.run(f"ANALYZE {table}")
        return table

    def published(self, table: str, port: int = 0, **options: Any) -> Pipeline:
        workspace = factories.make_workspace()
        connector = factories.make_connector(workspace, type="sql", **self.connection(port=port or self.port))
        mode = {"type": "bulk", "readers": PARTS}
        read = {"source": {"type": "table", "table": table}, "mode": mode, **options}
        source = {"type": "connector", "connector": str(connector.pk), "options": read}
        pipeline = factories.make_pipeline(workspace, input=source)
        return pipeline_publish(pipeline=pipeline, actor=factories.admin_of(workspace))

    async def test_the_parts_of_a_process_that_is_killed_are_finished_by_two_others(
        self, running: RunningManager
    ) -> None:
        rows = 50_000
        table = await asyncio.to_thread(self.filled, rows)
        gate = Gate(self.port)
        start = await asyncio.to_thread(end_offset, routing.INPUT)
        async with gate.listening() as port:
            pipeline = await sync_to_async(self.published)(table, port)
            parts = InputLease.objects.filter(pipeline=pipeline, part__gt=0)
            async with process(0, rows // 2) as killed:
                await wait_until_async(lambda: _counts(parts.filter(rows__gt=0, holder__endswith="-0"), PARTS))
                killed.kill()
            kept = sum([part.rows async for part in parts])
            assert 0 < kept < rows
            left = [_left(part, rows) async for part in parts]
            async with process(1, rows // 2), process(2, rows // 2):
                # As after the time for which the lease of a reader without a heartbeat is locked.
                assert await parts.aupdate(locked_until=timezone.now()) == PARTS
                for slot in (1, 2):
                    await wait_until_async(parts.filter(holder__endswith=f"-{slot}").aexists)
                gate.open.set()
                whole = InputLease.objects.filter(pipeline=pipeline, part=0)
                await wait_until_async(whole.exclude(last_ended_at=None).aexists)
        ended = await whole.aget()
        assert (ended.last_rows, ended.parts, ended.failure) == (rows, 0, "")
        assert set(json.loads(ended.breakpoint)) == {"run", "finished"}
        assert not await parts.aexists()
        await asyncio.to_thread(_check, start, rows, left)

    async def test_parts_of_a_pipeline_that_is_paused_go_on_in_the_middle(
        self, running: RunningManager, in_parts: None
    ) -> None:
        rows = 40_000
        table = await asyncio.to_thread(self.filled, rows)
        gate = Gate(self.port)
        start = await asyncio.to_thread(end_offset, routing.INPUT)
        async with gate.listening() as port, task():
            pipeline = await sync_to_async(self.published)(table, port)
            parts = InputLease.objects.filter(pipeline=pipeline, part__gt=0)
            await wait_until_async(lambda: _counts(parts.filter(rows__gt=0), PARTS))
            shown = await sync_to_async(_state)(pipeline)
            assert (shown["state"], shown["parts"]) == ("reading", {"left": PARTS, "total": PARTS})
            await sync_to_async(_act)(pipeline_pause, pipeline)
            await wait_until_async(lambda: _counts(parts.filter(token=None), PARTS))
            shown = await sync_to_async(_state)(pipeline)
            assert shown["state"] == "paused"
            assert 0 < shown["rows"] < rows
            assert shown["rows"] == sum([part.rows async for part in parts])
            left = [_left(part, rows) async for part in parts]
            gate.open.set()
            await sync_to_async(_act)(pipeline_resume, pipeline)
            await wait_until_async(InputLease.objects.filter(pipeline=pipeline, last_rows=rows).aexists)
        await asyncio.to_thread(_check, start, rows, left)

    async def test_parts_are_read_in_turns_and_another_input_has_its_own(
        self, running: RunningManager, in_parts: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(input_reader, "_TURN_SECONDS", -1.0)  # a turn is one batch
        turns: list[int] = []

        def claim(**wanted: Any) -> list[InputLease]:
            leases = leases_claim(**{**wanted, "limit": 1})
            turns.extend(lease.part for lease in leases)
            return leases

        monkeypatch.setattr(grpc, "leases_claim", claim)
        table, small = await asyncio.to_thread(self.filled, 4000), await asyncio.to_thread(self.filled, 10)
        start = await asyncio.to_thread(end_offset, routing.INPUT)
        pipeline = await sync_to_async(self.published)(table, batch_rows=200)
        async with task():
            whole = InputLease.objects.filter(pipeline=pipeline, part=0)
            await wait_until_async(whole.filter(parts=PARTS).aexists)
            neighbour = await sync_to_async(self.published)(small)
            await wait_until_async(InputLease.objects.filter(pipeline=neighbour, last_rows=10).aexists)
            assert await whole.filter(parts=PARTS).aexists()
            await wait_until_async(whole.filter(last_rows=4000).aexists)
        assert all(turns.count(part) > 4 for part in range(1, PARTS + 1))
        first_round = [part for part in turns if part][: PARTS * 2]
        assert sorted(first_round[:PARTS]) == list(range(1, PARTS + 1))
        numbers = [number for number, _ in await asyncio.to_thread(_messages, start)]
        assert sorted(numbers) == sorted([*range(1, 4001), *range(1, 11)])


async def _counts(leases: Any, expected: int) -> bool:
    return bool(await leases.acount() == expected)


def _state(pipeline: Pipeline) -> dict[str, Any]:
    """As the API tells it."""
    client = APIClient()
    client.force_login(factories.admin_of(pipeline.workspace))
    return dict(client.get(f"/api/v1/pipelines/{pipeline.pk}/input-state/").json())


def _act(action: Any, pipeline: Pipeline) -> None:
    fresh = Pipeline.objects.get(pk=pipeline.pk)
    action(pipeline=fresh, actor=factories.admin_of(fresh.workspace))


def _left(part: InputLease, rows: int) -> range:
    """The numbers of the rows that follow the part's breakpoint."""
    breakpoint, until = json.loads(part.breakpoint), json.loads(part.part_end)["until"]
    (after,), (last,) = breakpoint.get("after", [0]), until or [rows]
    return range(int(after) + 1, int(last) + 1)


def _check(start: int, rows: int, left: list[range]) -> None:
    """Every row is there. Some of those that were left are there twice, with the same ids."""
    messages = _messages(start)
    assert {number for number, _ in messages} == set(range(1, rows + 1))
    assert len(set(messages)) == rows
    repeated = {number for number, times in Counter(number for number, _ in messages).items() if times > 1}
    assert all(any(number in one for one in left) for number in repeated)


def _messages(start: int) -> list[tuple[int, str]]:
    """The numbers of the rows, and the ids of their messages."""
    read: list[tuple[int, str]] = []
    for record in records_of(routing.INPUT, start):
        headers = dict(record.headers() or ())
        read.append((json.loads(record.value() or b"")["id"], str(headers[MESSAGE_ID])))
    return read
