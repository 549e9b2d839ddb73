"""A reader of a database that is killed loses nothing."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from asgiref.sync import sync_to_async
from django.utils import timezone

from backend.apps.manager.models import InputLease
from backend.apps.pipelines.models import Pipeline
from backend.apps.pipelines.services import pipeline_publish
from backend.domain import routing
from backend.domain.message import MESSAGE_ID
from backend.settings import platform_settings
from spark_jobs.streaming.stop_channel import StopChannel
from tests import factories, infra
from tests.integration.conftest import RunningManager
from tests.integration.connectors.sql.databases import Database, Mariadb, Postgresql, pipe
from tests.integration.kafka_ends import end_offset
from tests.topics import records_of
from tests.waiting import wait_until_async


@pytest.mark.django_db(transaction=True)
class _Killed(Database):
    rows = 5_000
    numbers: str
    """A table or a function with that many numbers."""

    @pytest.mark.parametrize("recorded", [False, True], ids=["at once", "with a breakpoint"])
    async def test_a_reader_that_is_killed_in_mid_batch_loses_nothing(
        self,
        recorded: bool,
        redis_server: infra.Server,
        pipeline_topics: None,
        secret_keys: None,
        running: RunningManager,
    ) -> None:
        table = self.table()
        self.run(f"INSERT INTO {table} (id, text) SELECT n, repeat('x', 300) FROM {self.numbers}")
        flows = asyncio.Event()

        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            """Stops in the middle of the rows until they flow."""
            there, back = await asyncio.open_connection("127.0.0.1", self.port)
            asking = asyncio.create_task(pipe(reader, back))
            for _ in range(self.rows * 300 // 2 // 1000):
                writer.write(await there.read(1000))
            await pipe(there, writer, flows)
            await asking

        proxy = await asyncio.start_server(forward, "127.0.0.1", 0)
        pipeline = await sync_to_async(self.published)(table, proxy.sockets[0].getsockname()[1])
        lease = InputLease.objects.filter(pipeline=pipeline)
        start = await asyncio.to_thread(end_offset, routing.INPUT)

        async with self.task() as process:
            await wait_until_async(lambda: asyncio.to_thread(lambda: end_offset(routing.INPUT) > start))
            if recorded:
                await wait_until_async(lease.exclude(breakpoint="").aexists)
            process.kill()
        flows.set()
        read = await asyncio.to_thread(end_offset, routing.INPUT) - start
        assert read < self.rows
        kept = (await lease.aget()).rows
        assert kept > 0 or not recorded
        # As after the time for which the lease of a reader without a heartbeat is locked.
        assert await lease.aupdate(locked_until=timezone.now()) == 1
        async with self.task():
            await wait_until_async(lease.exclude(last_ended_at=None).aexists)

        proxy.close()

        messages = await asyncio.to_thread(self.messages, start)
        assert len(messages) == self.rows + read - kept  # only what follows the breakpoint was read again
        assert {number for number, _ in messages} == set(range(1, self.rows + 1))
        assert len(set(messages)) == self.rows  # those that were read twice have the same ids

    def published(self, table: str, port: int) -> Pipeline:
        workspace = factories.make_workspace()
        connector = factories.make_connector(workspace, type="sql", **self.connection(port=port))
        options = {"source": {"type": "table", "table": table}, "mode": {"type": "incrementing", "column": "id"}}
        source = {"type": "connector", "connector": str(connector.pk), "options": options}
        pipeline = factories.make_pipeline(workspace, input=source)
        return pipeline_publish(pipeline=pipeline, actor=factories.admin_of(workspace))

    @asynccontextmanager
    async def task(self) -> AsyncIterator[asyncio.subprocess.Process]:
        channel = StopChannel("127.0.0.1", platform_settings().service_token)
        command = [sys.executable, "-m", "tests.integration.input_process", str(channel.address[1])]
        process = await asyncio.create_subprocess_exec(*command)
        try:
            yield process
        finally:
            channel.stop()
            await process.wait()

    def messages(self, start: int) -> list[tuple[int, str]]:
        """The numbers of the rows, and the ids of their messages."""
        read: list[tuple[int, str]] = []
        for record in records_of(routing.INPUT, start):
            headers = dict(record.headers() or ())
            read.append((json.loads(record.value() or b"")["id"], str(headers[MESSAGE_ID])))
        return read


class TestPostgresqlKilled(Postgresql, _Killed):
    numbers = f"generate_series(1, {_Killed.rows}) AS n"


class TestMariadbKilled(Mariadb, _Killed):
    numbers = f"(SELECT seq AS n FROM seq_1_to_{_Killed.rows}) AS numbers"
