"""The input task, as far as it needs no server."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest

from backend.domain import limits, routing
from backend.domain import message as names
from backend.domain.capabilities import DeliveryError, Part, ReadBatch, Reading, ReadStream
from backend.domain.connector import RuntimeConnector, connectors
from backend.domain.inputs.connector import ConnectorInput
from backend.domain.pipeline import PipelineConfig, PipelineSnapshot
from backend.domain.reasons import Reason
from backend.domain.records import Record
from backend.domain.stages import INPUT_BATCHING
from backend.manager_api.client import RuntimePipeline
from backend.manager_api.leases import InputLease, Progress
from backend.telemetry.recorder import Recorder
from spark_jobs.streaming import input_reader
from spark_jobs.streaming.input_reader import InputReader, ReaderServices
from tests.infra import FILES_ROOT
from tests.waiting import LIMIT_SECONDS

SECRET = "planted-password-of-lines"
LINES = RuntimeConnector(type="toy_lines", connection={"folder": "/tmp", "passwords": [SECRET]})
TICKS = RuntimeConnector(type="toy_ticks", connection={"seconds": 0.01})


class Manager:
    """What a reader asks the manager for, and what it tells it."""

    def __init__(self, connector: RuntimeConnector, **options: Any) -> None:
        use = ConnectorInput(connector=uuid4(), options=options)
        index = [{"name": "n", "path": "n"}]
        config = PipelineConfig.model_validate({"input": use.model_dump(mode="json"), "index": index})
        snapshot = PipelineSnapshot(id=uuid4(), workspace_id=uuid4(), version=1, accepting=True, config=config)
        self._runtime = RuntimePipeline.of(snapshot, {use.connector: connector})
        self.completed: list[Progress] = []
        self.released: list[Progress] = []
        self.split_into: list[tuple[Progress, list[Part]]] = []

    async def runtime(self, *_: Any) -> RuntimePipeline:
        return self._runtime

    def held_runtime(self, *_: Any) -> RuntimePipeline:
        return self._runtime

    def push(self, connector: RuntimeConnector) -> None:
        """The input's connector was saved, with these values."""
        [used] = self._runtime.connectors
        self._runtime = self._runtime.with_connectors({used: connector})

    async def complete(self, _: InputLease, progress: Progress) -> None:
        self.completed.append(progress)

    async def split(self, _: InputLease, progress: Progress, parts: Sequence[Part]) -> None:
        self.split_into.append((progress, list(parts)))

    async def release(self, held: Sequence[tuple[InputLease, Progress]]) -> None:
        self.released += [progress for _, progress in held]


class Kafka:
    """Has everything at once."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def share(self) -> "Kafka":
        return self

    async def send_all(self, records: Sequence[Record]) -> asyncio.Future[None]:
        self.records += records
        acknowledged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        acknowledged.set_result(None)
        return acknowledged


def reader_of(
    manager: Manager, reading: Reading, kafka: Kafka | None = None, breakpoint: Any = None, ends_at: Any = None
) -> InputReader:
    """A reader that reaches no Redis, and no other Kafka."""
    services = ReaderServices(
        stage=INPUT_BATCHING,
        config=cast(Any, manager),
        leases=cast(Any, manager),
        producer=cast(Any, kafka or Kafka()),
        recorder=Recorder("redis://nobody.invalid"),
        calls=asyncio.Semaphore(),
    )
    return InputReader(InputLease("p", 1, "token", breakpoint, ends_at), reading, services)


class Door:
    """How a capability is opened and closed, in place of its own methods."""

    def __init__(self, type: str, kind: Any, monkeypatch: pytest.MonkeyPatch, *, opens: Any) -> None:
        self.opened = self.closed = 0
        self._opens = opens
        reader = connectors.get(type).capability(kind)
        assert reader is not None
        monkeypatch.setattr(reader, "open", lambda _: self._open())
        monkeypatch.setattr(reader, "close", lambda _: self._close())

    async def _open(self) -> None:
        self.opened += 1
        await self._opens()

    async def _close(self) -> None:
        self.closed += 1


async def hang() -> None:
    await asyncio.Event().wait()


async def test_an_error_of_an_input_shows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse() -> None:
        raise DeliveryError("login", f"The server says that {SECRET} is wrong.", retryable=True)

    Door("toy_lines", ReadBatch, monkeypatch, opens=refuse)
    reader = reader_of(Manager(LINES, file="orders"), Reading.BATCHING)
    with pytest.raises(DeliveryError, match="wrong") as failed:
        async with reader._opened():
            pass
    assert SECRET not in str(failed.value)


async def test_a_batch_whose_input_does_not_open_in_time_fails_is_closed_and_gives_its_lease_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(input_reader, "_OPEN_SECONDS", 0.01)
    door = Door("toy_lines", ReadBatch, monkeypatch, opens=hang)
    manager = Manager(LINES, file="orders")
    async with asyncio.timeout(LIMIT_SECONDS):
        await reader_of(manager, Reading.BATCHING).run()
    [progress] = manager.completed
    assert progress.failure == (
        "The input did not open within 0.01 s. Check that the system it is read from answers; opening is tried again."
    )
    assert (progress.breakpoint, progress.rows) == (b"", 0)
    assert (door.opened, door.closed) == (1, 1)


async def test_a_stream_is_outdated_once_its_connector_differs_from_the_one_that_it_reads_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def open() -> None: ...

    Door("toy_ticks", ReadStream, monkeypatch, opens=open)
    manager = Manager(TICKS)
    reader = reader_of(manager, Reading.STREAMING)
    assert not reader.is_outdated()
    async with reader._opened():
        manager.push(RuntimeConnector(type=TICKS.type, connection=dict(TICKS.connection)))
        assert not reader.is_outdated()
        manager.push(RuntimeConnector(type=TICKS.type, connection={"seconds": 0.02}))
        assert reader.is_outdated()


async def test_a_stream_that_does_not_open_in_time_is_closed_shown_as_failing_and_opened_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(input_reader, "_OPEN_SECONDS", 0.01)
    monkeypatch.setattr(input_reader, "_REOPEN_SECONDS", 0.0)
    tried_often = asyncio.Event()

    async def hang_and_tell() -> None:
        if door.opened == 3:
            tried_often.set()
        await hang()

    door = Door("toy_ticks", ReadStream, monkeypatch, opens=hang_and_tell)
    reader = reader_of(Manager(TICKS), Reading.STREAMING)
    reading = asyncio.create_task(reader.run())
    async with asyncio.timeout(LIMIT_SECONDS):
        await tried_often.wait()
    assert "did not open within 0.01 s" in (reader.progress().failure or "")
    assert (door.opened, door.closed) == (3, 2)
    reading.cancel()
    await asyncio.wait([reading])
    assert door.closed == 3


async def test_a_timeout_of_a_connectors_own_is_not_taken_for_the_limit_of_opening(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def time_out() -> None:
        raise TimeoutError

    door = Door("toy_lines", ReadBatch, monkeypatch, opens=time_out)
    manager = Manager(LINES, file="orders")
    await reader_of(manager, Reading.BATCHING).run()
    [progress] = manager.completed
    assert progress.failure is not None
    assert "failed unexpectedly (TimeoutError)" in progress.failure
    assert door.closed == 1


async def test_a_reader_that_loses_its_lease_while_its_input_opens_ends_at_once_and_closes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opening = asyncio.Event()

    async def begin() -> None:
        opening.set()
        await hang()

    door = Door("toy_lines", ReadBatch, monkeypatch, opens=begin)
    manager = Manager(LINES, file="orders")
    reading = asyncio.create_task(reader_of(manager, Reading.BATCHING).run())
    async with asyncio.timeout(LIMIT_SECONDS):
        await opening.wait()
        reading.cancel()
        await asyncio.wait([reading])
    assert reading.cancelled()
    assert (door.closed, manager.completed) == (1, [])


async def test_an_oversized_record_is_set_aside_as_it_fits_into_kafka_and_reading_goes_on(tmp_path: Path) -> None:
    oversized = [b'"' + b"a" * limits.BODY_BYTES + b'"', b'"' + b"b" * (2 * limits.TOPIC_BYTES) + b'"']
    (tmp_path / "orders").write_bytes(b"\n".join([b'{"n": 1}', *oversized, b'{"n": 2}']))
    manager = Manager(RuntimeConnector(type="toy_lines", connection={"folder": str(tmp_path)}), file="orders")
    kafka = Kafka()
    await reader_of(manager, Reading.BATCHING, kafka).run()
    [progress] = manager.completed
    assert (progress.failure, progress.breakpoint, progress.rows) == ("", b"4", 4)
    first, *set_aside, last = kafka.records
    assert [record.value for record in (first, last)] == [b'{"n": 1}', b'{"n": 2}']
    assert first.topic == last.topic != routing.DEAD_LETTER
    for record, body in zip(set_aside, oversized, strict=True):
        headers = dict(record.headers)
        assert record.topic == routing.DEAD_LETTER
        assert headers[names.DEAD_STAGE] == b"input_batching"
        assert headers[names.DEAD_REASON] == Reason.TOO_LARGE.encode()
        assert b"larger than 3,145,728 bytes" in headers[names.DEAD_ERROR]
        assert record.size <= limits.RECORD_BYTES
        assert body.startswith(record.value)
    assert set_aside[0].value == oversized[0]  # it still fits whole


async def test_a_row_that_does_not_fit_its_columns_is_set_aside_and_reading_goes_on() -> None:
    folder = FILES_ROOT / str(uuid4())
    folder.mkdir()
    (folder / "orders.csv").write_bytes(b"id,n\n1,2\nx,3\n4,5\n")
    connector = RuntimeConnector(type="local_files", connection={"folder": folder.name})
    manager = Manager(connector, format={"type": "csv", "types": {"id": "integer"}}, settle_seconds=0)
    kafka = Kafka()
    await reader_of(manager, Reading.BATCHING, kafka).run()
    [progress] = manager.completed
    assert (progress.failure, progress.rows) == ("", 3)
    first, set_aside, last = kafka.records
    assert [record.value for record in (first, last)] == [b'{"id":1,"n":"2"}', b'{"id":4,"n":"5"}']
    headers = dict(set_aside.headers)
    assert set_aside.topic == routing.DEAD_LETTER
    assert set_aside.value == b'{"id":"x","n":"3"}'
    assert headers[names.DEAD_STAGE] == b"input_batching"
    assert headers[names.DEAD_REASON] == Reason.UNFIT_VALUE.encode()
    assert headers[names.DEAD_ERROR] == (
        b"File orders.csv, line 3: the value of column 'id' is not of the type integer."
    )


def planned(monkeypatch: pytest.MonkeyPatch, parts: Sequence[Part]) -> None:
    """Has the reader of lines plan these parts."""

    async def plan(_: Any, breakpoint: Any) -> Sequence[Part]:
        return parts

    capability = connectors.get("toy_lines").capability(ReadBatch)
    assert capability is not None
    monkeypatch.setattr(capability, "plan", plan)


@pytest.fixture
def lines(tmp_path: Path) -> Manager:
    """Ten lines, two at a time."""
    (tmp_path / "orders").write_text("".join(f'{{"n": {number}}}\n' for number in range(10)))
    connector = RuntimeConnector(type="toy_lines", connection={"folder": str(tmp_path)})
    return Manager(connector, file="orders", at_a_time=2)


async def test_a_batch_that_is_planned_in_parts_is_split_and_not_read(
    lines: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [Part(0, 4), Part(4, 10)]
    planned(monkeypatch, parts)
    kafka = Kafka()
    await reader_of(lines, Reading.BATCHING, kafka).run()
    [(progress, split)] = lines.split_into
    assert (split, progress.rows, progress.failure, kafka.records) == (parts, 0, "", [])
    assert (lines.completed, lines.released) == ([], [])


async def test_a_part_is_left_after_its_turn_and_is_not_split_again(
    lines: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(monkeypatch, [Part(0, 4), Part(4, 10)])
    await reader_of(lines, Reading.BATCHING, breakpoint=4, ends_at=10).run()
    [progress] = lines.completed
    assert (progress.breakpoint, progress.rows) == (b"10", 6)
    monkeypatch.setattr(input_reader, "_TURN_SECONDS", -1.0)
    kafka = Kafka()
    await reader_of(lines, Reading.BATCHING, kafka, breakpoint=4, ends_at=10).run()
    [left] = lines.released
    assert (left.breakpoint, left.rows, left.failure, len(kafka.records)) == (b"6", 2, "", 2)
    assert (len(lines.completed), lines.split_into) == (1, [])


async def test_a_plan_that_fails_is_a_failure_of_the_batch(lines: Manager, monkeypatch: pytest.MonkeyPatch) -> None:
    async def plan(_: Any, breakpoint: Any) -> Sequence[Part]:
        raise DeliveryError("timeout", "The database did not say.", retryable=True)

    capability = connectors.get("toy_lines").capability(ReadBatch)
    assert capability is not None
    monkeypatch.setattr(capability, "plan", plan)
    await reader_of(lines, Reading.BATCHING).run()
    [progress] = lines.completed
    assert (progress.failure, progress.rows) == ("The database did not say.", 0)
    assert lines.split_into == []
