"""Which messages of a partition are done, and how that is committed.

A message that takes long must not hold back others that came after it. So whatever is done may be committed,
except what came after an unfinished message of its own key. The committed offset is that of the first message
that is open, as everywhere in Kafka; the commit's metadata lists the open ones after it, so that whoever reads
the partition next skips what is done.
"""

import base64
import binascii
import itertools
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass

import msgspec

from backend.domain.records import Record

_OPEN_BYTES = 2900
"""Of metadata, before they are written in base64: brokers take 4096 (``offset.metadata.max.bytes``)."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What of a partition is done: everything before ``end`` but ``open``, offsets in ascending order."""

    open: tuple[int, ...]
    end: int

    @property
    def offset(self) -> int:
        """The offset to commit."""
        return self.open[0] if self.open else self.end

    @property
    def metadata(self) -> str:
        """What is committed with the offset; empty when that says everything."""
        if self.offset == self.end:
            return ""
        steps = [after - before for before, after in itertools.pairwise((*self.open, self.end))]
        return base64.b64encode(msgspec.msgpack.encode(steps)).decode()

    @classmethod
    def of(cls, offset: int, metadata: str | None) -> "Progress":
        """As it was committed. Metadata that is somebody else's says nothing."""
        try:
            steps = msgspec.msgpack.decode(base64.b64decode(metadata or "", validate=True), type=list[int])
        except (binascii.Error, msgspec.DecodeError):
            return cls((), offset)
        *open_after, end = itertools.accumulate(steps, initial=offset)
        return cls(tuple(open_after), end)


class Entry(msgspec.Struct):
    """One message in flight. ``key`` is that of its order; ``records`` is None until it is done."""

    offset: int
    key: Hashable = None
    records: list[Record] | None = None


class PartitionWindow:
    """Messages in the order they were read, from where the partition's committed progress begins. They finish in
    any order.

    Offsets may have gaps (transaction markers, aborted records). Not thread-safe.
    """

    def __init__(self, committed: Progress) -> None:
        self._end = committed.end
        self._unread = deque(committed.open)
        self._entries: deque[Entry] = deque()
        self.has_news = False
        """Whether a message was finished since the last look at what is done."""

    def add(self, offset: int) -> Entry | None:
        """None for a message that was done before."""
        while self._unread and self._unread[0] < offset:
            self._unread.popleft()
        if self._unread and self._unread[0] == offset:
            self._unread.popleft()
        elif offset < self._end:
            return None
        entry = Entry(offset)
        self._entries.append(entry)
        return entry

    def finish(self, entry: Entry, records: list[Record]) -> None:
        entry.records = records
        self.has_news = True

    def take_done(self) -> tuple[Progress | None, list[Record]]:
        """Removes what may be committed: the progress that this makes (None when there is nothing) and the
        records, in order for each key."""
        self.has_news = False
        taken: list[Entry] = []
        left: deque[Entry] = deque()
        keys_left: set[Hashable] = set()
        size = 0
        while self._entries and size < _OPEN_BYTES:
            entry = self._entries.popleft()
            if entry.records is not None and entry.key not in keys_left:
                taken.append(entry)
                continue
            size += _packed_size(entry.offset - left[-1].offset) if left else 0
            left.append(entry)
            keys_left.add(entry.key)
        self._entries.extendleft(reversed(left))
        if not taken:
            return None, []
        self._end = max(self._end, taken[-1].offset + 1)
        still_open = (*(entry.offset for entry in left if entry.offset < self._end), *self._unread)
        return Progress(still_open, self._end), [record for entry in taken for record in entry.records or ()]

    def __len__(self) -> int:
        return len(self._entries)


def _packed_size(step: int) -> int:
    """Of an integer in MessagePack, rounded up."""
    return 1 if step < 128 else 3 if step < 65_536 else 9
