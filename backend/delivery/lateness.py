"""Whether the event loop has more to do than it can."""

import asyncio

_INTERVAL_SECONDS = 0.025
_LATE_SECONDS = 0.005
_WEIGHT = 0.5
"""Of the newest measurement: a single long task is no overload."""


class Lateness:
    """How late the running event loop runs what is due, measured until it is closed."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = 0.0
        self._schedule()

    @property
    def is_late(self) -> bool:
        return self._seconds > _LATE_SECONDS

    def close(self) -> None:
        self._timer.cancel()

    def _schedule(self) -> None:
        due = self._loop.time() + _INTERVAL_SECONDS
        self._timer = self._loop.call_at(due, self._measure, due)

    def _measure(self, due: float) -> None:
        self._seconds += (self._loop.time() - due - self._seconds) * _WEIGHT
        self._schedule()
