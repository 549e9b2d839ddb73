"""Limits how much of a task one output or one pipeline may occupy, so that a slow one cannot starve the others."""

import asyncio
from collections import deque


class Bulkhead:
    """Room for a number of messages and bytes at the same time; further messages queue, first in, first out.

    A single message always has room, however large it is.
    """

    def __init__(self, messages: int, bytes: int) -> None:
        self._max_messages = messages
        self._max_bytes = bytes
        self.messages = 0
        self._bytes = 0
        self._queue: deque[tuple[asyncio.Future[bool], int]] = deque()

    @property
    def capacity(self) -> int:
        """The largest number of messages at the same time."""
        return self._max_messages

    @property
    def is_empty(self) -> bool:
        return self.messages == 0 and not self._queue

    def resize(self, messages: int) -> None:
        """Changes the number of messages; those that were admitted stay."""
        self._max_messages = messages
        self._admit_from_line()

    async def enter(self, size: int) -> bool:
        """Waits for room and takes it; False when the queue was dismissed."""
        if self.enter_now(size):
            return True
        place: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._queue.append((place, size))
        return await place

    def enter_now(self, size: int) -> bool:
        """Takes room if there is some."""
        if self._queue or not self._has_room(size):
            return False
        self._take(size)
        return True

    def leave(self, size: int) -> None:
        self.messages -= 1
        self._bytes -= size
        self._admit_from_line()

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def dismiss_line(self) -> None:
        for place, _ in self._queue:
            if not place.done():
                place.set_result(False)
        self._queue.clear()

    def _admit_from_line(self) -> None:
        while self._queue and self._has_room(self._queue[0][1]):
            place, size = self._queue.popleft()
            if not place.done():  # otherwise the waiting task was cancelled
                self._take(size)
                place.set_result(True)

    def _has_room(self, size: int) -> bool:
        return self.messages == 0 or (self.messages < self._max_messages and self._bytes + size <= self._max_bytes)

    def _take(self, size: int) -> None:
        self.messages += 1
        self._bytes += size
