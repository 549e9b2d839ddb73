"""What has been read of a store: the breakpoint, whose size is bounded."""

from collections.abc import Sequence
from typing import Any

from backend.connectors.parts.files.store import StoredFile
from backend.domain import json

_RECENT_BYTES = 64 * 1024
"""Limit of the names that a breakpoint holds."""


class Progress:
    """Files are read in the order of their times and names. Those up to the ``horizon`` are known to be read; of those
    after it, which may still appear with a time that has passed, the ones that were read are remembered by name.
    When that becomes too much, the oldest are forgotten and the horizon moves past them.
    """

    def __init__(self, breakpoint: Any) -> None:
        state = breakpoint or {}
        self._horizon: tuple[int, str] = tuple(state.get("horizon", (-1, "")))  # type: ignore[assignment]
        self._recent: list[tuple[int, str, str]] = [tuple(entry) for entry in state.get("recent", ())]
        # Without times: that of a file that waits for its marker is another one when the marker is written again.
        self._known = {entry[1:] for entry in self._recent}
        self._bytes = sum(map(_size, self._recent))
        self._current: tuple[str, str] = tuple(state.get("current", ("", "")))  # type: ignore[assignment]
        self._rows: int = state.get("rows", 0)

    def breakpoint(self) -> dict[str, Any]:
        recent = [list(entry) for entry in self._recent]
        return {"horizon": list(self._horizon), "recent": recent, "current": list(self._current), "rows": self._rows}

    def is_new(self, file: StoredFile) -> bool:
        return (file.time, file.name) > self._horizon and file[1:3] not in self._known

    def order(self, file: StoredFile) -> tuple[bool, int, str]:
        """Sorts files: the one that was begun comes first."""
        return (file.name, file.version) != self._current, file.time, file.name

    def rows_of(self, file: StoredFile) -> int:
        """How many of its rows were read."""
        return self._rows if (file.name, file.version) == self._current else 0

    def reached(self, file: StoredFile, rows: int) -> None:
        self._current, self._rows = (file.name, file.version), rows

    def finished(self, file: StoredFile) -> None:
        self._current, self._rows = ("", ""), 0
        self._insert(file[:3])
        while self._bytes > _RECENT_BYTES:
            oldest = self._recent.pop(0)
            self._known.discard(oldest[1:])
            self._bytes -= _size(oldest)
            self._horizon = max(self._horizon, oldest[:2])

    def _insert(self, entry: tuple[int, str, str]) -> None:
        place = len(self._recent)
        while place and self._recent[place - 1] > entry:  # nearly always it is the last one
            place -= 1
        self._recent.insert(place, entry)
        self._known.add(entry[1:])
        self._bytes += _size(entry)


def _size(entry: Sequence[Any]) -> int:
    return len(json.dumps(entry))
