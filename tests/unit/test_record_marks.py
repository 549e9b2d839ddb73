"""What the event loop of a lane executes is marked, and nothing that waits."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from spark_jobs.streaming.record_marks import RecordMarks
from spark_jobs.streaming.worker_deaths import Cell, RecordId

TOPIC = "topic"


@pytest.fixture
def cell() -> Cell:
    made = Cell()
    made.read_from(TOPIC)
    return made


@pytest.fixture
async def marks(cell: Cell) -> AsyncIterator[RecordMarks]:
    made = RecordMarks(cell)
    loop = asyncio.get_running_loop()
    loop.set_task_factory(made.task_factory)
    yield made
    loop.set_task_factory(None)


def at(offset: int) -> RecordId:
    return RecordId(TOPIC, 0, offset)


async def test_neighbours_4_each_of_many_is_marked_only_while_it_runs(cell: Cell, marks: RecordMarks) -> None:
    async def work(offset: int) -> int:
        for _ in range(3):
            assert cell.executing() == at(offset)
            await asyncio.sleep(0.001 * (offset % 3))
            assert cell.executing() == at(offset)
            await asyncio.to_thread(lambda: None)
        return offset

    tasks = [asyncio.create_task(marks.marked(0, offset, work(offset))) for offset in range(100)]
    while not all(task.done() for task in tasks):
        assert cell.executing() is None
        await asyncio.sleep(0)
    assert [task.result() for task in tasks] == list(range(100))
    assert cell.executing() is None


async def test_neighbours_4_a_future_is_awaited_and_what_it_raises_arrives(cell: Cell, marks: RecordMarks) -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def work() -> int:
        try:
            return await future
        except LookupError:
            assert cell.executing() == at(1)
            raise

    task = asyncio.create_task(marks.marked(0, 1, work()))
    await asyncio.sleep(0)
    assert cell.executing() is None
    future.set_exception(KeyError("missing"))
    with pytest.raises(KeyError):
        await task
    assert cell.executing() is None


async def test_neighbours_4_what_is_cancelled_is_marked_while_it_cleans_up(cell: Cell, marks: RecordMarks) -> None:
    seen = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            seen.append(cell.executing())
            await asyncio.sleep(0)
            seen.append(cell.executing())

    task = asyncio.create_task(marks.marked(0, 1, work()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == [at(1), at(1)]
    assert cell.executing() is None


async def test_neighbours_4_a_task_that_a_record_begins_is_part_of_it(cell: Cell, marks: RecordMarks) -> None:
    async def part(offset: int) -> None:
        assert cell.executing() == at(offset)
        await asyncio.sleep(0.001)
        assert cell.executing() == at(offset)

    async def work(offset: int) -> None:
        await asyncio.gather(part(offset), part(offset))
        async with asyncio.timeout(60):
            await asyncio.create_task(part(offset))
        assert cell.executing() == at(offset)

    async def nobodys() -> None:
        assert cell.executing() is None

    await asyncio.gather(*(marks.marked(0, offset, work(offset)) for offset in range(5)), nobodys())


async def test_neighbours_4_it_can_be_awaited_and_closed_as_any_coroutine(cell: Cell, marks: RecordMarks) -> None:
    closed = []

    async def work() -> str:
        try:
            await asyncio.sleep(0)
            return "done"
        except GeneratorExit:
            closed.append(cell.executing())
            raise

    assert await marks.marked(0, 1, work()) == "done"
    begun = marks.marked(0, 2, work())
    begun.send(None)
    begun.close()
    assert closed == [at(2)]
    assert cell.executing() is None
