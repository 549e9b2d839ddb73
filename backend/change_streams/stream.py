"""Sends the changes of one log."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from backend.change_streams import checkpoint
from backend.change_streams.changes import Changes
from backend.change_streams.checkpoint import Checkpoint
from backend.collections.documents import Document
from backend.collections.reader import CollectionReader
from backend.collections.table import Table
from backend.domain import cdc
from backend.domain.cdc import Progress, Update

_POLL_SECONDS = 0.1
_TRANSACTION_SECONDS = 1.0
"""Transactions begin no sooner one after the other, since each commits twice."""
_IDLE_SECONDS = 10.0
"""Without documents, progress is stated so often, so that readers know that there are none."""
_DOCUMENTS = 20_000
"""About the most in one transaction, whose records are in memory."""
_SENT_AT_ONCE = 1000


class Sender(Protocol):
    """Where a stream is sent. What was sent is durable there when a method returns; all raise DeliveryError."""

    async def updates(self, updates: Sequence[Update]) -> None: ...

    async def progress(self, progress: Progress) -> None: ...

    async def close(self) -> None: ...


class ChangeStream:
    """One log, whose documents become transactions of the stream, one after the other.

    A transaction is planned first: which documents it has, and its time, are committed before anything is sent. So
    whatever is repeated after a crash is the same, and a reader that knows an update already ignores it. Then its
    updates are sent, its end is committed, and at last progress is stated. The last statement is repeated at the start,
    by which readers learn of it if the process died before it was sent.
    """

    def __init__(self, table: Table, changes: Changes) -> None:
        """Blocks. Raises CollectionError."""
        self._table = table
        self._changes = changes
        self._reader = CollectionReader(table.location)
        self._checkpoint = checkpoint.load(table)

    @property
    def position(self) -> Checkpoint:
        """How far it has come."""
        return self._checkpoint

    async def run(self, sender: Sender, at: Callable[[str], None] = lambda step: None) -> None:
        """Sends until it is cancelled; ``at`` is told the name of each step that is done. Raises CollectionError,
        DeliveryError, and ValueError for a document that does not fit the schema. What was begun is repeated by a
        stream that is opened anew."""
        self._sender, self._at = sender, at
        if self._changes.needs_history:
            await asyncio.to_thread(self._restore)
        await self._state_progress()
        self._at("started")
        while True:
            begun = time.monotonic()
            if not self._checkpoint.is_planned:
                await self._plan()
            await self._send()
            await asyncio.sleep(max(0.0, begun + _TRANSACTION_SECONDS - time.monotonic()))

    async def _plan(self) -> None:
        """Waits for documents, and commits which are in the next transaction. Without any it is empty."""
        deadline = time.monotonic() + _IDLE_SECONDS
        end = self._checkpoint.begin
        while end == self._checkpoint.begin and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_SECONDS)
            end = await asyncio.to_thread(self._next_end)
        self._checkpoint = self._checkpoint.planned(end, time.time_ns() // 1_000_000)
        if self._checkpoint.is_planned:
            await self._save(self._checkpoint)
            self._at("planned")

    async def _send(self) -> None:
        position = self._checkpoint
        diffs = await asyncio.to_thread(lambda: cdc.consolidated(self._changes.of(self._documents())))
        updates = [Update(data, position.next, diff) for data, diff in diffs.items()]
        for first in range(0, len(updates), _SENT_AT_ONCE):
            await self._sender.updates(updates[first : first + _SENT_AT_ONCE])
            self._at("updates_sent")
        await self._save(position.ended(len(updates)))
        self._changes.commit()
        self._at("committed")
        await self._state_progress()
        self._at("progress_sent")

    async def _state_progress(self) -> None:
        if (progress := self._checkpoint.progress()) is not None:
            await self._sender.progress(progress)

    async def _save(self, position: Checkpoint) -> None:
        self._checkpoint = await asyncio.to_thread(checkpoint.save, self._table, position)

    def _next_end(self) -> tuple[int, ...]:
        self._reader.refresh()
        begin = self._checkpoint.begin
        ends = self._reader.snapshot.ends[: len(begin)]
        most = max(1, _DOCUMENTS // len(begin))
        return tuple(min(end, first + most) for first, end in zip(begin, ends, strict=True))

    def _restore(self) -> None:
        self._reader.refresh()
        for partition, end in enumerate(self._checkpoint.begin):
            self._changes.restore(self._reader.documents(partition, self._reader.start_offset(partition), end))

    def _documents(self) -> Iterator[Document]:
        """Those of the planned transaction."""
        self._reader.refresh()
        for partition, (begin, end) in enumerate(zip(self._checkpoint.begin, self._checkpoint.end, strict=True)):
            yield from self._reader.documents(partition, begin, end)
