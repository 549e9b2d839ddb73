"""A stored file as a Python file, for libraries that read in a thread, and what is laid around it."""

import asyncio
import io
from concurrent.futures import Future
from typing import Any

from backend.connectors.parts.files.store import ReadRange, limited

_RANGE_BYTES = 1024 * 1024
MOST_ROW_BYTES = 32 * 1024 * 1024
"""A larger row would be held in memory as a whole, and could not become a message."""
_MAGIC = {b"\x1f\x8b\x08": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}


class RowTooLargeError(Exception):
    """A row is larger than any message may be."""


class StoredSource(io.RawIOBase):
    """Reads a file of ``size`` bytes range by range. Its methods are called in another thread than the event loop's;
    ``failure`` is what the store raised, since libraries may wrap it."""

    def __init__(self, read: ReadRange, size: int) -> None:
        self._read = read
        self._size = size
        self._loop = asyncio.get_running_loop()
        self._offset = 0
        self._range = (0, b"")
        self._pending: Future[bytes] | None = None
        self._cancelled = False
        self.failure: Exception | None = None

    def cancel(self) -> None:
        """Ends what waits for the store, and whatever is read after it. Called in the event loop."""
        self._cancelled = True
        if self._pending is not None:
            self._pending.cancel()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._offset

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._offset, io.SEEK_END: self._size}[whence]
        self._offset = begin + offset
        return self._offset

    def readinto(self, buffer: Any) -> int:
        size = min(len(buffer), self._size - self._offset)
        if size <= 0:
            return 0
        start, data = self._range
        if not start <= self._offset < start + len(data):
            start, data = self._range = self._offset, self._fetched(self._offset, max(size, _RANGE_BYTES))
        part = data[self._offset - start : self._offset - start + size]
        buffer[: len(part)] = part
        self._offset += len(part)
        return len(part)

    def _fetched(self, offset: int, size: int) -> bytes:
        size = min(size, self._size - offset)
        try:
            if self._cancelled:
                raise EOFError("Reading was cancelled.")
            self._pending = asyncio.run_coroutine_threadsafe(self._answer(offset, size), self._loop)
            data = self._pending.result()
            if len(data) != size:
                raise EOFError("The store ended its answer early.")
        except Exception as error:
            self.failure = error
            raise
        return data

    async def _answer(self, offset: int, size: int) -> bytes:
        async with limited():
            return await self._read(offset, size)


class SizedRows(io.RawIOBase):
    """Refuses to read further when a row does not end."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._row_bytes = 0

    def row_ended(self) -> None:
        self._row_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part: bytes = self._file.read(len(buffer))
        self._row_bytes += len(part)
        if self._row_bytes > MOST_ROW_BYTES:
            raise RowTooLargeError(f"A row is larger than {MOST_ROW_BYTES:,} bytes.")
        buffer[: len(part)] = part
        return len(part)


def decompressed(file: io.RawIOBase) -> Any:
    """What is in the file, which may be compressed with gzip or zstd. Refuses one that ends early when it is read."""
    begin = file.read(4) or b""
    file.seek(0)
    for magic, codec in _MAGIC.items():
        if begin.startswith(magic):
            import pyarrow

            return pyarrow.CompressedInputStream(pyarrow.PythonFile(file, mode="r"), codec)
    return file
