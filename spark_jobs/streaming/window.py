"""Tracks which messages of a partition are done, and how that is committed.

A slow message must not hold back later ones. So a finished message may be committed unless an older message of the
same key is unfinished. The committed offset is that of the first open message, as usual in Kafka; the commit's
metadata lists the open messages after it, so that the partition's next reader skips those that are done.
"""

import base64
import binascii
import itertools
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import msgspec

from backend.domain import limits
from backend.domain.records import Record

_OPEN_BYTES = 2900
"""Limit of the metadata before base64: brokers accept 4096 bytes (``offset.metadata.max.bytes``)."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A partition's progress: everything before ``end`` is done except ``open``, offsets in ascending order."""

    open: tuple[int, ...]
    end: int

    @property
    def offset(self) -> int:
        """The offset to commit."""
        return self.open[0] if self.open else self.end

    @property
    def metadata(self) -> str:
        """The metadata to commit; empty when the offset alone is enough."""
        if self.offset == self.end:
            return ""
        steps = [after - before for before, after in itertools.pairwise((*self.open, self.end))]
        return base64.b64encode(msgspec.msgpack.encode(steps)).decode()

    @classmethod
    def of(cls, offset: int, metadata: str | None) -> "Progress":
        """The progress that was committed. Metadata in another format is ignored."""
        try:
            steps = msgspec.msgpack.decode(base64.b64decode(metadata or "", validate=True), type=list[int])
        except (binascii.Error, msgspec.DecodeError):
            return cls((), offset)
        *open_after, end = itertools.accumulate(steps, initial=offset)
        return cls(tuple(open_after), end)


class Entry(msgspec.Struct):
    """One message in flight, read from ``source`` at ``read_at`` of the monotonic clock. Messages of the same ``key``
    stay in order; it is None until the message is begun. ``records`` is None until it is done."""

    offset: int
    read_at: float = 0.0
    source: Any = None
    key: Hashable = None
    records: list[Record] | None = None
    size: int = 0
    """The bytes of the records."""
    is_committed: bool = False


class PartitionWindow:
    """Messages in the order they were read, beginning at the partition's committed progress. They finish in any
    order.

    Offsets may have gaps (transaction markers, aborted records). Not thread-safe.
    """

    def __init__(self, committed: Progress) -> None:
        self.is_lost = False
        """Whether nothing of it is committed any more."""
        self.next = -1
        """The next offset to be read; negative while that is unknown."""
        self._end = committed.end
        self._unread = deque(committed.open)
        self._entries: deque[Entry] = deque()
        self.has_finished = False
        """Whether a message has finished since ``take_done`` was last called."""

    def add(self, offset: int, read_at: float = 0.0, source: Any = None) -> Entry | None:
        """None for a message that is done according to the committed progress."""
        while self._unread and self._unread[0] < offset:
            self._unread.popleft()
        if self._unread and self._unread[0] == offset:
            self._unread.popleft()
        elif offset < self._end:
            return None
        entry = Entry(offset, read_at, source)
        self._entries.append(entry)
        return entry

    def finish(self, entry: Entry, records: list[Record], size: int | None = None) -> None:
        """``size`` is that of the records, if it is known."""
        entry.records = records
        entry.size = total_size(records) if size is None else size
        self.has_finished = True

    def take_done(self) -> tuple[Progress | None, list[Entry]]:
        """Removes messages that may be committed, as many as one transaction may write: the resulting progress (None
        when there are none) and the messages, in order for each key."""
        self.has_finished = False
        taken: list[Entry] = []
        left: deque[Entry] = deque()
        keys_left: set[Hashable] = set()
        size = written = 0
        while self._entries and size < _OPEN_BYTES:
            if written > limits.TRANSACTION_BYTES:
                self.has_finished = True
                break
            entry = self._entries.popleft()
            if entry.records is not None and entry.key not in keys_left:
                taken.append(entry)
                written += entry.size
                continue
            size += _packed_size(entry.offset - left[-1].offset) if left else 0
            left.append(entry)
            keys_left.add(entry.key)
        self._entries.extendleft(reversed(left))
        if not taken:
            return None, []
        self._end = max(self._end, taken[-1].offset + 1)
        still_open = (*(entry.offset for entry in left if entry.offset < self._end), *self._unread)
        return Progress(still_open, self._end), taken

    def oldest(self) -> float | None:
        """When the oldest message was read that is not taken."""
        return self._entries[0].read_at if self._entries else None

    def finished_size(self) -> int:
        """The bytes of the records that wait to be committed."""
        return sum(entry.size for entry in self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def total_size(records: list[Record]) -> int:
    """The bytes of the records, with their headers."""
    return sum([record.size for record in records])


def _packed_size(step: int) -> int:
    """The size of an integer in MessagePack, rounded up."""
    return 1 if step < 128 else 3 if step < 65_536 else 9
