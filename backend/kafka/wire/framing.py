"""Frames over a stream: a size of four bytes, then the frame."""

import asyncio
import struct
import threading
import time
from abc import abstractmethod
from typing import cast

from backend.kafka.wire.primitives import MalformedError

SMALL = 64 * 1024
"""Bytes of the largest frame that needs no buffer of its own until it is complete."""

_SIZE = struct.Struct(">i")
_ZEROS = memoryview(bytes(1024 * 1024))


class _Scratch(threading.local):
    """What a thread's connections read into. Nothing is left in it between two reads."""

    def __init__(self) -> None:
        self.data = bytearray(_SIZE.size + SMALL)
        self.view = memoryview(self.data)


_SCRATCH = _Scratch()


class FrameProtocol(asyncio.BufferedProtocol):
    """One end of a connection. Small frames are copied out of a shared buffer; a large frame is read into its own."""

    def __init__(self, max_frame: int) -> None:
        self.transport: asyncio.Transport
        self.bytes_read = 0
        self.is_closed = False
        """Nothing is delivered any more."""
        self.half_since: float | None = None
        """When the first bytes of a frame came that is still incomplete."""
        self._max_frame = max_frame
        self._scratch, self._view = _SCRATCH.data, _SCRATCH.view
        self._rest: bytearray | None = None
        self._large: bytearray | None = None
        self._large_held = 0
        self._large_size = self._room = 0

    @abstractmethod
    def frame_received(self, frame: bytearray) -> None:
        """Called with each frame, including its size. The callee owns the buffer."""

    @abstractmethod
    def malformed(self, error: MalformedError) -> None:
        """Called when the peer sent bytes that are not a frame; the connection is closed afterwards."""

    def announced(self, size: int) -> None:
        """Called with the size of each frame, perhaps repeatedly. Raises MalformedError unless it is accepted."""
        if not 0 < size <= self._max_frame:
            raise MalformedError(f"The frame has {size} bytes; the limit is {self._max_frame}.")

    def room(self, held: int, size: int) -> int:
        """How many bytes the buffer of a large frame may have, of which ``held`` have come. If it returns no more than
        these, it has paused reading, and ``read_on`` has to be called."""
        return size

    @property
    def half_held(self) -> int:
        """The bytes of the frame that is incomplete."""
        return self._large_held if self._large is not None else len(self._rest or b"")

    def drop_half(self) -> None:
        """Forgets the incomplete frame."""
        self._rest = self._large = self.half_since = None

    def read_on(self) -> None:
        """Continues with a large frame for which there was no room."""
        self._room = self.room(self._large_held, self._large_size)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.drop_half()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._large is not None:
            return memoryview(self._grown(self._large))[self._large_held :]
        rest = self._rest
        if rest is None:
            return self._view
        self._scratch[: len(rest)] = rest
        return self._view[len(rest) :]

    def _grown(self, large: bytearray) -> bytearray:
        """The buffer with its room. Not sooner than this, since the transport had a view of it during its last read."""
        try:
            while len(large) < self._room:
                large += _ZEROS[: self._room - len(large)]
        except BufferError:  # it has one still
            large = self._large = large + bytes(self._room - len(large))
        return large

    def buffer_updated(self, nbytes: int) -> None:
        self.bytes_read += nbytes
        try:
            if self._large is not None:
                self._large_held += nbytes
                self._fill(self._large)
            else:
                rest = self._rest
                self._cut(nbytes if rest is None else nbytes + len(rest))
        except MalformedError as error:
            self.malformed(error)
            self.transport.abort()

    def _fill(self, large: bytearray) -> None:
        if self._large_held == self._large_size:
            self.drop_half()
            self.frame_received(large)
        elif self._large_held == self._room:
            self.read_on()

    def _cut(self, held: int) -> None:
        """Everything is taken out of the shared buffer before any frame is delivered."""
        at, scratch = 0, self._scratch
        frames: list[bytearray] = []
        refused: MalformedError | None = None
        size = 0
        while held - at >= _SIZE.size:
            (size,) = _SIZE.unpack_from(scratch, at)
            try:
                self.announced(size)
            except MalformedError as error:
                refused = error
                break
            end = at + _SIZE.size + size
            if end > held:
                break
            frames.append(scratch[at:end])
            at, size = end, 0
        if refused is None:
            self._keep(at, held, _SIZE.size + size)
        for frame in frames:
            if self.is_closed:
                return
            self.frame_received(frame)
        if refused is not None:
            raise refused

    def _keep(self, start: int, end: int, size: int) -> None:
        """Keeps what has come of a frame of this size."""
        if start == end:
            self._rest = self.half_since = None
            return
        if start or self.half_since is None:
            self.half_since = time.monotonic()
        rest = self._scratch[start:end]
        if size <= len(self._scratch):
            self._rest = rest
            return
        self._rest, self._large, self._large_held, self._large_size = None, rest, len(rest), size
        self.read_on()
