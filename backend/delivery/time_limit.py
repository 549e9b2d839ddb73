"""A time limit that many tasks share."""

import asyncio
from types import TracebackType


class TimeLimit:
    """Ends blocks of tasks that take longer, as ``asyncio.timeout`` does, by one timer for all that are open: one for
    each costs four times as much, which is seen at full load. A task has one block at a time. Raises TimeoutError.

    Used on the event loop that it is made on: to ask which one runs is a system call in Python 3.11.
    """

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._open: dict[asyncio.Task[object], tuple[float, int]] = {}
        """Until when they may take, which grows from one to the next, and how often they were cancelled before."""
        self._late: dict[asyncio.Task[object], int] = {}
        """Those that were cancelled because their time was over."""
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        task = asyncio.current_task(self._loop)
        assert task is not None
        over_at = self._loop.time() + self._seconds
        self._open[task] = over_at, task.cancelling()
        if self._timer is None:
            self._timer = self._loop.call_at(over_at, self._cancel_late)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        task = asyncio.current_task(self._loop)
        assert task is not None
        if self._open.pop(task, None) is not None:
            return
        # Somebody else may have cancelled the task as well, which is not for this block to take back.
        if task.uncancel() <= self._late.pop(task) and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _cancel_late(self) -> None:
        self._timer = None
        while self._open:
            task, (over_at, cancelled) = next(iter(self._open.items()))
            if over_at > self._loop.time():
                self._timer = self._loop.call_at(over_at, self._cancel_late)
                return
            del self._open[task]
            self._late[task] = cancelled
            task.cancel()
