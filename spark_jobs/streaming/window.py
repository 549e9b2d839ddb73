"""Which messages of a partition are done, and up to where its offset may be committed."""

from collections import deque
from dataclasses import dataclass, field

from backend.delivery.results import Record


@dataclass(slots=True)
class Entry:
    """One message in flight. ``records`` is None until it is done."""

    offset: int
    records: list[Record] | None = None


@dataclass(slots=True)
class PartitionWindow:
    """Messages in the order they were read. They finish in any order; only the finished
    prefix may be committed, with exactly the records of that prefix.

    Offsets may have gaps (transaction markers, aborted records). Not thread-safe.
    """

    _entries: deque[Entry] = field(default_factory=deque)

    def add(self, offset: int) -> Entry:
        entry = Entry(offset)
        self._entries.append(entry)
        return entry

    def take_done(self) -> tuple[int | None, list[Record]]:
        """Removes the finished prefix: the offset to commit (None when it is empty) and its records."""
        offset: int | None = None
        records: list[Record] = []
        while self._entries and self._entries[0].records is not None:
            entry = self._entries.popleft()
            offset = entry.offset + 1
            records.extend(entry.records or ())
        return offset, records

    @property
    def has_done(self) -> bool:
        return bool(self._entries) and self._entries[0].records is not None

    def __len__(self) -> int:
        return len(self._entries)
