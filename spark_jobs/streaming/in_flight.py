"""The messages of a lane task that are read and not committed, which its threads share."""

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from confluent_kafka import Message as KafkaRecord

from backend.domain.records import Record
from backend.kafka.client.ends import is_loss
from spark_jobs.streaming.lane import Lane
from spark_jobs.streaming.window import Entry, PartitionWindow, Progress

Accepted = tuple[KafkaRecord, PartitionWindow, Entry]
Finished = tuple[Accepted, list[Record], int]
"""With the records' size."""


class Gap(NamedTuple):
    """Offsets of a partition that were not read, before ``end``; lost, or aborted by another producer."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True)
class Done:
    """The finished messages of a partition's window, to be committed."""

    partition: int
    window: PartitionWindow
    progress: Progress
    entries: list[Entry]


class InFlight:
    """The windows of the task's partitions, and what they hold in sum.

    Thread-safe. The sums are bounded by ``Lane.window`` and ``Lane.window_bytes``.
    """

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._windows: dict[int, PartitionWindow] = {}
        self._offsets: dict[int, int] = {}
        self._messages = 0
        self._bytes = 0
        self._bytes_to_commit = 0
        # Guards all of this; signalled when a message is done or committed.
        self._changed = threading.Condition()
        self._awaited: list[Callable[[], bool]] = []
        self._reading_ended = False
        self._commits_ended = False
        self.is_committing = False

    # -- waiting

    def _wait(self, condition: Callable[[], bool], seconds: float | None = None) -> bool:
        """Waits until the condition holds. A finished message only wakes threads when that is so for one of them: it
        costs more than handling a message, and a thread that waits for room would be woken by each of hundreds."""
        self._awaited.append(condition)
        try:
            return self._changed.wait_for(condition, seconds)
        finally:
            self._awaited.remove(condition)

    def notify(self) -> None:
        """Something else that is waited for has happened."""
        with self._changed:
            self._changed.notify_all()

    def wait_for_room(self, part: float, or_else: Callable[[], bool], seconds: float) -> bool:
        """Waits until no more than that part of the window is used, or the other condition holds."""
        with self._changed:
            return self._wait(lambda: or_else() or not self.holds(part), seconds)

    def wait_until_empty(self, partitions: list[int] | None, seconds: float) -> bool:
        """Waits until everything (of those partitions) is committed, or nothing is committed any more."""

        def empty() -> bool:
            windows = [w for p, w in self._windows.items() if partitions is None or p in partitions]
            return self._commits_ended or (not any(windows) and not self.is_committing)

        with self._changed:
            return self._wait(empty, seconds)

    def wait_for_finished(self) -> bool:
        """Waits for finished messages; returns False when there are none and reading has ended."""
        with self._changed:
            self._wait(lambda: self._reading_ended or self._has_finished())
            return self._has_finished()

    def end_reading(self, seconds: float) -> None:
        """Nothing is added any more. Waits until the open transaction has ended."""
        with self._changed:
            self._reading_ended = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self.is_committing, seconds)

    def end_commits(self) -> None:
        with self._changed:
            self._commits_ended = True
            for window in self._windows.values():
                window.is_lost = True
            self._changed.notify_all()

    # -- the windows

    def assign(self, partition: int, progress: Progress, next_offset: int) -> None:
        """``next_offset`` is the first one that Kafka still has."""
        with self._changed:
            window = self._windows[partition] = PartitionWindow(progress)
            window.next = next_offset
            self._offsets[partition] = progress.offset

    def drop(self, partitions: Iterable[int]) -> None:
        """They belong to another task."""
        with self._changed:
            for partition in partitions:
                window = self._windows.pop(partition, None)
                if window is not None:
                    window.is_lost = True
                    self._bytes_to_commit -= window.finished_size()

    def add(self, records: list[KafkaRecord]) -> tuple[list[Accepted], list[Gap]]:
        """Those of the records, which have no error, that are to be handled; and what was skipped before them."""
        accepted: list[Accepted] = []
        gaps: list[Gap] = []
        now = time.monotonic()
        with self._changed:
            for record in records:
                partition: int = record.partition()  # type: ignore[assignment]
                window = self._windows.get(partition)
                if window is None:  # revoked between fetch and here
                    continue
                offset: int = record.offset()  # type: ignore[assignment]
                if is_loss(window.next, offset):
                    gaps.append(Gap(partition, window.next, offset))
                window.next = offset + 1
                entry = window.add(offset, now, record)
                if entry is None:  # committed already, ahead of older messages
                    continue
                accepted.append((record, window, entry))
                self._messages += 1
                self._bytes += len(record)
        return accepted, gaps

    def finish(self, finished: list[Finished]) -> None:
        with self._changed:
            for (record, window, entry), records, size in finished:
                window.finish(entry, records, size)
                self._messages -= 1
                self._bytes -= len(record)
                if self._windows.get(record.partition()) is window:  # type: ignore[arg-type]
                    self._bytes_to_commit += entry.size
            if any([condition() for condition in self._awaited]):
                self._changed.notify_all()

    def take_done(self) -> list[Done]:
        """What one transaction should commit; it is under way until ``end_transaction``."""
        with self._changed:
            self.is_committing = True
            return [
                Done(partition, window, progress, entries)
                for partition, window in self._windows.items()
                for progress, entries in [window.take_done()]
                if progress is not None
            ]

    def owned(self, done: list[Done]) -> list[Done]:
        """Without partitions that were lost meanwhile: their new owners read those messages again."""
        with self._changed:
            return [part for part in done if self._windows.get(part.partition) is part.window]

    def note_committed(self, done: list[Done]) -> None:
        for part in done:
            self._offsets[part.partition] = part.progress.offset
            for entry in part.entries:
                entry.is_committed = True

    def end_transaction(self, done: list[Done]) -> None:
        with self._changed:
            self.is_committing = False
            self._bytes_to_commit -= sum(entry.size for part in done for entry in part.entries)
            self._changed.notify_all()

    # -- what they hold

    def holds(self, part: float) -> bool:
        """Whether more than that part of the window is in flight or waits to be committed."""
        most_bytes = self._lane.window_bytes * part
        return (
            self._messages > self._lane.window * part or self._bytes > most_bytes or self._bytes_to_commit > most_bytes
        )

    @property
    def room(self) -> int:
        """The bytes that further results may have."""
        return self._lane.window_bytes - self._bytes_to_commit

    def _has_finished(self) -> bool:
        return any(window.has_finished for window in self._windows.values())

    def oldest(self) -> float | None:
        """When the oldest message was read, by the monotonic clock."""
        with self._changed:
            return min((at for window in self._windows.values() if (at := window.oldest()) is not None), default=None)

    def committed_offset(self, partition: int) -> int:
        return self._offsets.get(partition, 0)
