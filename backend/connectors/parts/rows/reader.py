import asyncio
import hashlib
import time
from abc import abstractmethod
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, TypeVar

from backend.connectors.parts.database import (
    Position,
    Query,
    ReadingSession,
    Row,
    configuration_error,
)
from backend.connectors.parts.rows.options import (
    ByTimestamp,
    ByTimestampAndNumber,
    Incrementing,
    ReadTable,
    SqlInputOptions,
    WholeTable,
)
from backend.domain import json
from backend.domain.capabilities import Batch, Connection, InputRecord, ReadBatch

_READ_SECONDS = 600.0
"""After this time, reading ends at the next batch."""
_SETTLE_SECONDS = 2.0
"""How long a reader waits for transactions that may still commit rows before those that it sees."""


ConnectionT = TypeVar("ConnectionT", bound=Connection)


class RowReader(ReadBatch[ConnectionT, SqlInputOptions]):
    """Reads rows in the order of their positions, in one statement that is read as it is consumed."""

    options_model = SqlInputOptions

    def __init__(self, connection: ConnectionT, options: SqlInputOptions) -> None:
        super().__init__(connection, options)
        self._session: ReadingSession | None = None

    @abstractmethod
    async def opened_session(self) -> ReadingSession:
        """A connection to the database. Raises DeliveryError."""

    @property
    def knows_transactions(self) -> bool:
        """Whether its sessions have a horizon."""
        return False

    async def open(self) -> None:
        self._session = await self.opened_session()
        await self._session.prepare_reading()
        self._query = await self._described(self._session)
        described = json.dumps(self.options.source.model_dump())
        self._source = hashlib.sha256(described).hexdigest()[:16]

    async def close(self) -> None:
        if self._session is not None:
            self._session.abort()

    async def read(self, breakpoint: Any) -> AsyncIterator[Batch]:
        """Ends after some minutes, since a statement that runs for hours keeps the database from cleaning up. So a
        large table is read in several turns."""
        until = time.monotonic() + _READ_SECONDS
        async for batch in self._following(breakpoint):
            yield batch
            if self._query.position and time.monotonic() > until:
                return

    async def estimate(self, breakpoint: Any) -> int | None:
        """By the planner where there is one: exact numbers would need to read everything."""
        assert self._session is not None
        state = breakpoint or {}
        if isinstance(self.options.mode, WholeTable):
            if "finished" in state and not _is_due(self.options.mode, state):
                return 0
            after = None if "finished" in state else state.get("after")
        else:
            after = state.get("position")
        return await self._session.estimate(replace(self._query, after=after))

    def _following(self, breakpoint: Any) -> AsyncIterator[Batch]:
        mode = self.options.mode
        if isinstance(mode, WholeTable):
            return self._read_all(mode, breakpoint or {"run": 1})
        if self.knows_transactions:
            return self._read_settled(breakpoint or {})
        return self._read_new(breakpoint or {})

    async def _described(self, session: ReadingSession) -> Query:
        options, mode = self.options, self.options.mode
        key = tuple(options.key)
        if isinstance(options.source, ReadTable):
            table = await session.table(options.source.table)
            source, key = table.sql, key or table.primary_key
        else:
            source = f"({options.source.query.replace('%', '%%')})"
        match mode:
            case WholeTable():
                return Query(source, key, key)
            case Incrementing():
                return Query(source, key, (mode.column,))
            case ByTimestampAndNumber():
                position: tuple[str, ...] = (mode.timestamp_column, mode.incrementing_column)
            case ByTimestamp():
                if not key:
                    raise configuration_error(
                        "Reading by a timestamp needs a key: name the columns that identify a row."
                    )
                position = (mode.timestamp_column, *(name for name in key if name != mode.timestamp_column))
        return Query(source, key, position, settled=(mode.timestamp_column, mode.delay_seconds))

    async def _read_all(self, mode: WholeTable, state: dict[str, Any]) -> AsyncIterator[Batch]:
        """All rows, by their key if there is one, so that a reader that was interrupted continues."""
        run = state["run"]
        if "finished" in state:
            if not _is_due(mode, state):
                return
            run, state = run + 1, {}
        query = replace(self._query, after=state.get("after"))
        async for records, position in self._batches(query, str(run)):
            yield Batch(records, {"run": run, "after": position} if query.position else {"run": run})
        yield Batch((), {"run": run, "finished": int(time.time())})

    async def _read_new(self, state: dict[str, Any]) -> AsyncIterator[Batch]:
        async for records, position in self._batches(replace(self._query, after=state.get("position"))):
            yield Batch(records, {"position": position})

    async def _read_settled(self, state: dict[str, Any]) -> AsyncIterator[Batch]:
        """Rows up to the last one that is visible, once every transaction has ended that was running when it was: one
        of those may still commit rows before it. A batch that cannot wait for them leaves the rows to the next one."""
        assert self._session is not None
        position, pending = state.get("position"), state.get("pending")
        for _ in range(2):  # what a former batch has left, and what is visible now
            if pending is None:
                horizon = await self._session.horizon(replace(self._query, after=position))
                if horizon is None:
                    return
                pending = {"until": horizon[0], "transaction": horizon[1]}
                repeated = True
            else:
                repeated = False
            if not await self._is_settled(pending["transaction"]):
                yield Batch((), {"position": position, "pending": pending})
                return
            query = replace(self._query, after=position, until=pending["until"])
            async for records, reached in self._batches(query):
                yield Batch(records, {"position": reached, "pending": pending})
            position, pending = pending["until"], None
            yield Batch((), {"position": position})
            if repeated:
                return

    async def _is_settled(self, transaction: int) -> bool:
        assert self._session is not None
        until = time.monotonic() + _SETTLE_SECONDS
        while not await self._session.is_settled(transaction):
            if time.monotonic() > until:
                return False
            await asyncio.sleep(0.05)
        return True

    async def _batches(self, query: Query, run: str = "") -> AsyncIterator[tuple[list[InputRecord], Position]]:
        """Records with the position of the last one."""
        assert self._session is not None
        records: list[InputRecord] = []
        size = 0
        position: Position = []
        async for row in self._session.rows(query):
            if records and size + len(row.body) > self.options.batch_bytes:
                yield records, position
                records, size = [], 0
            records.append(self._record(row, query, run))
            size += len(row.body)
            position = row.position
            if len(records) == self.options.batch_rows:
                yield records, position
                records, size = [], 0
        if records:
            yield records, position

    def _record(self, row: Row, query: Query, run: str) -> InputRecord:
        key = None
        if row.key:
            key = (row.key[0].encode() if len(row.key) == 1 else json.dumps(row.key)) or None
        identity = json.dumps([self._source, run, row.key, row.position]).decode() if query.position else ""
        return InputRecord(row.body, key=key, identity=identity)


def _is_due(mode: WholeTable, state: dict[str, Any]) -> bool:
    """Whether a table that was read to its end is read again."""
    return mode.repeat_minutes is not None and time.time() >= state["finished"] + mode.repeat_minutes * 60
