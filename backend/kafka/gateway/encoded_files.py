"""Encoded batches on disk, so that what was read once is not decoded and encoded again."""

import logging
import os
import tempfile
import threading
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import IO

from backend.kafka.gateway.batches import Batch

log = logging.getLogger(__name__)

_FILES = 16
"""The oldest of so many files is removed to make room."""


@dataclass
class _File:
    content: IO[bytes]
    size: int = 0
    runs: list["_Run"] = field(default_factory=list)


@dataclass(frozen=True, order=True)
class _Run:
    """Batches that follow one another, at a place of a file."""

    base: int
    last: int
    log: Hashable = field(compare=False)
    file: _File = field(compare=False)
    position: int = field(compare=False)
    batches: tuple[tuple[int, int, int], ...] = field(compare=False)
    """Of each the first and the last offset and the size."""


class EncodedFiles:
    """Temporary files below TMPDIR, which nobody else sees and which vanish with the process. Blocks; used by several
    threads. ``log`` identifies a partition in one encoding; ``max_bytes`` 0 keeps nothing."""

    def __init__(self, max_bytes: int) -> None:
        self._file_bytes = max_bytes // _FILES
        self._lock = threading.Lock()
        self._files: deque[_File] = deque()
        self._runs: dict[Hashable, list[_Run]] = {}

    def put(self, log_key: Hashable, batches: Sequence[Batch]) -> None:
        """Keeps batches that follow one another."""
        data = b"".join(batch.data for batch in batches)
        with self._lock:
            if not self._file_bytes or not data or self._at(log_key, batches[0].base) is not None:
                return
            try:
                file = self._file_for(len(data))
                os.pwrite(file.content.fileno(), data, file.size)
            except OSError as error:
                log.warning("Encoded batches are not kept on disk any more: %s", error)
                self._file_bytes = 0
                return
            sizes = tuple((batch.base, batch.last, len(batch.data)) for batch in batches)
            run = _Run(batches[0].base, batches[-1].last, log_key, file, file.size, sizes)
            file.size += len(data)
            file.runs.append(run)
            insort(self._runs.setdefault(log_key, []), run)

    def has(self, log_key: Hashable, offset: int) -> bool:
        """Whether there is a batch with the offset. Does not block for long."""
        with self._lock:
            return self._at(log_key, offset) is not None

    def get(self, log_key: Hashable, offset: int) -> list[Batch]:
        """Batches from the one with the offset on; none if it is not kept."""
        with self._lock:
            run = self._at(log_key, offset)
            if run is None:
                return []
            descriptor = os.dup(run.file.content.fileno())  # it may be removed while it is read
        try:
            data = os.pread(descriptor, sum(size for _, _, size in run.batches), run.position)
        finally:
            os.close(descriptor)
        batches, begin = [], 0
        for base, last, size in run.batches:
            if last >= offset:
                batches.append(Batch(base, last, data[begin : begin + size]))
            begin += size
        return batches

    def _at(self, log_key: Hashable, offset: int) -> _Run | None:
        runs = self._runs.get(log_key, [])
        at = bisect_right(runs, offset, key=lambda run: run.base) - 1
        return runs[at] if at >= 0 and runs[at].last >= offset else None

    def _file_for(self, size: int) -> _File:
        """The newest file, or a new one. Raises OSError."""
        if not self._files or self._files[-1].size + size > self._file_bytes:
            if len(self._files) == _FILES:
                self._remove(self._files.popleft())
            self._files.append(_File(tempfile.TemporaryFile(buffering=0)))  # noqa: SIM115 - closed by _remove
        return self._files[-1]

    def _remove(self, file: _File) -> None:
        for run in file.runs:
            runs = self._runs[run.log]
            runs.remove(run)
            if not runs:
                del self._runs[run.log]
        file.content.close()
