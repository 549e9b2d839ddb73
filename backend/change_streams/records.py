"""The records of a change stream by their keys, on disk."""

import sqlite3
from collections.abc import Iterable, Iterator

_CACHE_KILOBYTES = 32 * 1024


class RecordsByKey:
    """A temporary database: what exceeds its cache is in a file below TMPDIR, which nobody else sees and which vanishes
    with this object. It is filled from the log, so nothing has to be durable. Used by one thread at a time."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", check_same_thread=False)
        self._database.execute(f"PRAGMA cache_size = -{_CACHE_KILOBYTES}")
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.execute("CREATE TABLE records (key BLOB PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID")

    def get(self, key: bytes) -> bytes | None:
        """The record of the key, None when there is none."""
        row = self._database.execute("SELECT record FROM records WHERE key = ?", [key]).fetchone()
        return row[0] if row is not None else None

    def keys(self) -> Iterator[bytes]:
        return (key for (key,) in self._database.execute("SELECT key FROM records ORDER BY key"))

    def update(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Replaces the record of each key; None removes it."""
        with self._database:
            for key, record in records:
                if record is None:
                    self._database.execute("DELETE FROM records WHERE key = ?", [key])
                else:
                    self._database.execute("REPLACE INTO records VALUES (?, ?)", [key, record])
