"""Limits how much of a task one output or one pipeline may occupy, so that a slow one cannot starve the others."""

import asyncio
from collections import deque


class Bulkhead:
    """Room for a number of messages and bytes at the same time; further messages queue, first in, first out.

    A single message always has room, however large it is. Used on the event loop that it is made on.
    """

    def __init__(self, messages: int, bytes: int) -> None:
        self._loop = asyncio.get_running_loop()  # a system call in Python 3.11, too much for each message
        self._max_messages = messages
        self._max_bytes = bytes
        self.messages = 0
        self.bytes = 0
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
        self._admit_queued()

    async def enter(self, size: int) -> bool:
        """Waits for room and takes it; False when the queue was evicted."""
        return self.enter_now(size) or await self.enqueue(size)

    def enter_now(self, size: int) -> bool:
        """Takes room if there is some."""
        if self._queue or not self._has_room(size):
            return False
        self._take(size)
        return True

    def enqueue(self, size: int) -> asyncio.Future[bool]:
        """Appends to the queue; the result is whether there was room, or False when the queue was evicted."""
        has_room: asyncio.Future[bool] = self._loop.create_future()
        self._queue.append((has_room, size))
        return has_room

    def leave(self, size: int) -> None:
        self.messages -= 1
        self.bytes -= size
        self._admit_queued()

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def evict_queue(self) -> None:
        for has_room, _ in self._queue:
            if not has_room.done():
                has_room.set_result(False)
        self._queue.clear()

    def _admit_queued(self) -> None:
        while self._queue and self._has_room(self._queue[0][1]):
            has_room, size = self._queue.popleft()
            if not has_room.done():  # otherwise the waiting task was cancelled
                self._take(size)
                has_room.set_result(True)

    def _has_room(self, size: int) -> bool:
        return self.messages == 0 or (self.messages < self._max_messages and self.bytes + size <= self._max_bytes)

    def _take(self, size: int) -> None:
        self.messages += 1
        self.bytes += size
