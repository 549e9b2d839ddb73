"""Marks which record an event loop executes, so that its worker's death is known to be of that record."""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

from spark_jobs.streaming.worker_deaths import Cell

T = TypeVar("T")


class RecordMarks:
    """The marks of one event loop. A record is marked only while Python runs for it, never while it waits, so the mark
    is exact whatever number of records is in flight."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._current: tuple[int, int] | None = None

    def begin(self, partition: int, offset: int) -> None:
        self._current = (partition, offset)
        self._cell.begin(partition, offset)

    def end(self) -> None:
        self._cell.end()
        self._current = None

    def marked(self, partition: int, offset: int, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """The same work, which marks the record while it runs."""
        return _Marked(self, partition, offset, work)

    def task_factory(self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        """The event loop's. A task that is begun while a record runs is part of it, such as the delivery to one of
        several outputs. One that others share, such as that of a batch, is part of the record that began it."""
        if self._current is not None:
            work = self.marked(*self._current, work)
        return asyncio.Task(work, loop=loop, **options)


class _Marked(Coroutine[Any, Any, T]):
    __slots__ = ("_marks", "_offset", "_partition", "_work")

    def __init__(self, marks: RecordMarks, partition: int, offset: int, work: Coroutine[Any, Any, T]) -> None:
        self._marks = marks
        self._partition = partition
        self._offset = offset
        self._work = work

    def send(self, value: Any) -> Any:
        self._marks.begin(self._partition, self._offset)
        try:
            return self._work.send(value)
        finally:
            self._marks.end()

    def throw(self, *error: Any) -> Any:
        self._marks.begin(self._partition, self._offset)
        try:
            return self._work.throw(*error)
        finally:
            self._marks.end()

    def close(self) -> None:
        self._marks.begin(self._partition, self._offset)
        try:
            self._work.close()
        finally:
            self._marks.end()

    def __next__(self) -> Any:
        return self.send(None)

    def __await__(self) -> Generator[Any, Any, T]:
        return self  # type: ignore[return-value]
