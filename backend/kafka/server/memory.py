"""The memory that requests of clients take, of all connections of a process together."""

import contextlib
import ctypes
from collections import deque
from typing import Protocol


class Reader(Protocol):
    """A connection that reads a large frame."""

    def read_on(self) -> None:
        """Called when there is room for more of the frame; takes it."""


class RequestMemory:
    """Counts the bytes of requests until they are answered.

    Large frames wait for room. Once the ordinary part is full, a single one at a time may take more: as much as the
    largest frame needs. So it becomes complete, however many others are half read, and ``total`` is never exceeded by
    large frames. Small frames do not wait, but count.
    """

    def __init__(self, total: int, largest: int) -> None:
        self._ordinary = total - largest
        self._privileged: Reader | None = None
        self._waiting: deque[tuple[Reader, int]] = deque()
        self.used = 0
        self.peak = 0
        """The most since somebody set it back."""

    @property
    def is_short(self) -> bool:
        return self.used > self._ordinary

    @property
    def is_awaited(self) -> bool:
        """Whether a frame waits for room."""
        return bool(self._waiting)

    def take(self, reader: Reader, size: int) -> bool:
        """Room for more of the reader's large frame. Without any, ``read_on`` is called once there is."""
        if reader is not self._privileged and self.used + size > self._ordinary:
            if not self._has_room(size):
                self._waiting.append((reader, size))
                return False
            self._privileged = reader
        self.add(size)
        return True

    def complete(self, reader: Reader) -> None:
        """The reader's frame is complete, or will not be."""
        if reader is self._privileged:
            self._privileged = None
            self._serve()

    def leave(self, reader: Reader) -> None:
        """The reader no longer waits and reads nothing more."""
        if self._waiting:
            self._waiting = deque(waiting for waiting in self._waiting if waiting[0] is not reader)
        self.complete(reader)

    def add(self, size: int) -> None:
        """A small frame has come."""
        self.used += size
        self.peak = max(self.peak, self.used)

    def give(self, size: int) -> None:
        """A frame was answered, or dropped."""
        self.used -= size
        self._serve()

    def _has_room(self, size: int) -> bool:
        # What the last privileged frame took has to be given back first, even if the frame is complete.
        return self.used + size <= self._ordinary or (self._privileged is None and not self.is_short)

    def _serve(self) -> None:
        while self._waiting and self._has_room(self._waiting[0][1]):
            self._waiting.popleft()[0].read_on()


def return_unused() -> None:
    """Returns what the process has freed to the system, which the allocator would keep otherwise."""
    with contextlib.suppress(AttributeError, OSError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)
