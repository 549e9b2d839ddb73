"""Frames over a stream: a size of four bytes, then the frame."""

import asyncio
import struct
from abc import abstractmethod
from typing import cast

from backend.kafka.wire.primitives import MalformedError

_SIZE = struct.Struct(">i")
_SCRATCH = 64 * 1024


class FrameProtocol(asyncio.BufferedProtocol):
    """One end of a connection. Small frames are copied out of a shared buffer; a large frame is read into its own."""

    def __init__(self, max_frame: int) -> None:
        self.transport: asyncio.Transport
        self.bytes_read = 0
        self._max_frame = max_frame
        self._scratch = bytearray(_SCRATCH)
        self._view = memoryview(self._scratch)
        self._held = 0
        self._large: memoryview | None = None
        self._large_held = 0

    @abstractmethod
    def frame_received(self, frame: bytearray) -> None:
        """Called with each frame, including its size. The callee owns the buffer."""

    @abstractmethod
    def malformed(self, reason: str) -> None:
        """Called when the peer sent bytes that are not a frame; the connection is closed afterwards."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._held, self._large = 0, None

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._large is not None:
            return self._large[self._large_held :]
        return self._view[self._held :]

    def buffer_updated(self, nbytes: int) -> None:
        self.bytes_read += nbytes
        try:
            if self._large is not None:
                self._large_held += nbytes
                if self._large_held == len(self._large):
                    frame, self._large = self._large.obj, None
                    self.frame_received(cast(bytearray, frame))
            else:
                self._held += nbytes
                self._cut()
        except MalformedError as error:
            self.malformed(str(error))
            self.transport.abort()

    def _cut(self) -> None:
        at, held, scratch = 0, self._held, self._scratch
        while held - at >= 4:
            (size,) = _SIZE.unpack_from(scratch, at)
            if not 0 < size <= self._max_frame:
                raise MalformedError(f"The frame has {size} bytes; the limit is {self._max_frame}.")
            end = at + 4 + size
            if end > held:
                if size > _SCRATCH - 4:
                    self._begin_large(size, at)
                    return
                break
            frame = scratch[at:end]
            at = end
            self.frame_received(frame)
        rest = held - at
        if at and rest:
            scratch[:rest] = scratch[at:held]
        self._held = rest

    def _begin_large(self, size: int, start: int) -> None:
        self._large = memoryview(bytearray(4 + size))
        self._large_held = self._held - start
        self._large[: self._large_held] = self._view[start : self._held]
        self._held = 0
