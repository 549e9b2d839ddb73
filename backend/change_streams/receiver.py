"""A reference receiver of change streams: applies CDCv2, and keeps the multiset that it describes."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from backend.domain import json

Record = str
"""A record as canonical JSON."""


class ContradictionError(Exception):
    """A stream that says what it has denied before; the message is for people."""


class Receiver:
    """What was said of one stream.

    Updates count once their time is complete: progress was stated for it, and as many were received as were stated.
    Messages may be repeated, and come in any order. A statement that is repeated is a rollback, as long as messages
    come in order: updates at the times after it were those of a transaction that failed, and are forgotten.
    """

    def __init__(self, *, in_order: bool = True) -> None:
        self.records: Counter[Record] = Counter()
        """The multiset as of ``complete``."""
        self.complete = 0
        """All times before it are complete."""
        self._in_order = in_order
        self._stated = 0
        """All times before it have a stated number of updates."""
        self._waiting: dict[int, tuple[int, dict[int, int]]] = {}
        """Statements that begin after a gap: by their lower end the upper one and the counts."""
        self._counts: dict[int, int] = {}
        self._updates: dict[int, dict[Record, int]] = {}

    def update(self, record: Any, time: int, diff: int) -> None:
        """Raises ContradictionError."""
        if time < self.complete:
            return  # it was repeated
        if not diff or time < 0:
            raise ContradictionError(f"The update at {time} with the difference {diff} says nothing.")
        key = json.canonical(record).decode()
        known = self._updates.setdefault(time, {})
        if known.setdefault(key, diff) != diff:
            raise ContradictionError(f"Two updates of a record at {time} have different differences.")
        self._complete()

    def progress(self, lower: int, upper: int, counts: Mapping[int, int]) -> None:
        """Raises ContradictionError."""
        if upper <= lower or any(not lower <= time < upper or count < 0 for time, count in counts.items()):
            raise ContradictionError(f"The statement from {lower} to {upper} is none.")
        if upper <= self._stated:
            for time, count in counts.items():
                if time >= self.complete and self._counts.get(time, 0) != count:
                    raise ContradictionError(f"Another number of updates was stated at {time} before.")
            if self._in_order and upper == self._stated:
                self._updates = {time: known for time, known in self._updates.items() if time < upper}
            return
        self._waiting[lower] = (upper, dict(counts))
        while self._stated in self._waiting:
            upper, counts = self._waiting.pop(self._stated)
            self._counts |= {time: count for time, count in counts.items() if count}
            self._stated = upper
        self._complete()

    def message(self, message: Mapping[str, Any]) -> None:
        """A message as the push API has it in JSON. Raises ContradictionError, and KeyError or TypeError for anything
        else."""
        if "updates" in message:
            for update in message["updates"]:
                self.update(update["data"], update["time"], update["diff"])
            return
        progress = message["progress"]
        counts = {entry["time"]: entry["count"] for entry in progress["counts"]}
        self.progress(progress["lower"][0], progress["upper"][0], counts)

    def _complete(self) -> None:
        if any(len(known) > self._counts.get(time, 0) for time, known in self._updates.items() if time < self._stated):
            raise ContradictionError("There are more updates at a time than were stated.")
        outstanding = [time for time, count in self._counts.items() if len(self._updates.get(time, {})) < count]
        complete = min([self._stated, *outstanding])
        for time in sorted(time for time in self._updates if time < complete):
            for record, diff in self._updates.pop(time).items():
                self.records[record] += diff
                if not self.records[record]:
                    del self.records[record]
        self._counts = {time: count for time, count in self._counts.items() if time >= complete}
        self.complete = complete
