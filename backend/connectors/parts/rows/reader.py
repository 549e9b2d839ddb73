import asyncio
import hashlib
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
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
    ReadQuery,
    ReadTable,
    ReadTables,
    SqlInputOptions,
    WholeTable,
    WholeTableInParts,
)
from backend.domain import json
from backend.domain.capabilities import Batch, Connection, DeliveryError, InputRecord, Part, ReadBatch
from backend.domain.reasons import Reason

_READ_SECONDS = 600.0
"""After this time, reading ends at the next batch."""
_SETTLE_SECONDS = 2.0
"""How long one reading waits for transactions that may still commit rows before those that it sees."""
_SETTLING_SECONDS = 0.05
_LARGE_TABLE_ROWS = 500_000
"""A table of about so many rows is read in parts."""
_PLAN_SECONDS = 30.0


ConnectionT = TypeVar("ConnectionT", bound=Connection)


@dataclass(frozen=True)
class _Rows:
    """Rows that are read in one order: of a table, or of a query, which has no name. ``digest`` identifies them."""

    name: str
    query: Query
    digest: str


class RowReader(ReadBatch[ConnectionT, SqlInputOptions]):
    """Reads rows in the order of their positions, by one statement for each table, which is read as it is consumed."""

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
        source = self.options.source
        tables = [ReadTable(table=name) for name in source.tables] if isinstance(source, ReadTables) else [source]
        self._sources = [await self._described(self._session, table) for table in tables]

    async def close(self) -> None:
        if self._session is not None:
            self._session.abort()

    async def read(self, breakpoint: Any) -> AsyncIterator[Batch]:
        """Ends after some minutes unless it is a part, since a statement that runs for hours keeps the database from
        cleaning up. So a large table is read in several turns, and the tables after it have theirs in between."""
        until = time.monotonic() + _READ_SECONDS
        self._patience = _SETTLE_SECONDS
        progress = self._progress(breakpoint)
        for rows in progress.in_turn():
            async for batch in self._following(rows, progress.state(rows)):
                yield Batch(batch.records, progress.reached(rows, batch.breakpoint))
                if rows.query.position and self.ends_at is None and time.monotonic() > until:
                    return

    async def plan(self, breakpoint: Any) -> Sequence[Part]:
        """A large table is read in parts from its beginning, or as it was begun."""
        mode, state = self.options.mode, breakpoint or {"run": 1}
        if not isinstance(mode, WholeTableInParts) or not isinstance(self.options.source, ReadTable):
            return ()
        [rows] = self._sources
        if mode.readers == 1 or not rows.query.position or "after" in state:
            return ()
        run = state["run"]
        if "finished" in state:
            if not _is_due(mode, state):
                return ()
            run += 1
        boundaries = await self._boundaries(rows.query, mode.readers)
        begins = [{"run": run}, *({"run": run, "after": position} for position in boundaries)]
        ends = [*boundaries, None]
        return [Part(begin, {"until": end}) for begin, end in zip(begins, ends, strict=True)] if boundaries else ()

    async def _boundaries(self, query: Query, parts: int) -> list[Position]:
        assert self._session is not None
        limit = asyncio.timeout(_PLAN_SECONDS)
        try:
            async with limit:
                estimate = await self._session.estimate(query)
                if estimate is None or estimate < _LARGE_TABLE_ROWS:
                    return []
                return await self._session.boundaries(query, parts, estimate)
        except TimeoutError:
            if not limit.expired():
                raise
            text = (
                f"The database did not say within {_PLAN_SECONDS:g} s how the table is divided among its readers. "
                "One reader does not ask for that."
            )
            raise DeliveryError(Reason.TIMEOUT, text, retryable=True, option="mode") from None

    async def estimate(self, breakpoint: Any) -> int | None:
        """By the planner where there is one: exact numbers would need to read everything."""
        progress = self._progress(breakpoint)
        estimates = [await self._estimate(rows, progress.state(rows)) for rows in self._sources]
        known = [estimate for estimate in estimates if estimate is not None]
        return sum(known) if len(known) == len(estimates) else None

    def _progress(self, breakpoint: Any) -> "_OneTable | _Tables":
        if isinstance(self.options.source, ReadTables):
            return _Tables(self._sources, breakpoint)
        [rows] = self._sources
        return _OneTable(rows, breakpoint)

    async def _estimate(self, rows: _Rows, state: dict[str, Any]) -> int | None:
        assert self._session is not None
        if isinstance(self.options.mode, WholeTable):
            if "finished" in state and not _is_due(self.options.mode, state):
                return 0
            after = None if "finished" in state else state.get("after")
        else:
            after = state.get("position")
        return await self._session.estimate(replace(rows.query, after=after))

    def _following(self, rows: _Rows, state: dict[str, Any]) -> AsyncIterator[Batch]:
        mode = self.options.mode
        if isinstance(mode, WholeTable):
            return self._read_all(rows, mode, state or {"run": 1})
        if self.knows_transactions:
            return self._read_settled(rows, state)
        return self._read_new(rows, state)

    async def _described(self, session: ReadingSession, source: ReadTable | ReadQuery) -> _Rows:
        key, name = tuple(self.options.key), ""
        if isinstance(source, ReadTable):
            table = await session.table(source.table)
            sql, key, name = table.sql, key or table.primary_key, source.table
        else:
            sql = f"({source.query.replace('%', '%%')})"
        digest = hashlib.sha256(json.dumps(source.model_dump())).hexdigest()[:16]
        return _Rows(name, self._query(sql, key), digest)

    def _query(self, source: str, key: tuple[str, ...]) -> Query:
        mode = self.options.mode
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

    async def _read_all(self, rows: _Rows, mode: WholeTable, state: dict[str, Any]) -> AsyncIterator[Batch]:
        """All rows, or a part's, by their key if there is one, so that a reader that was interrupted continues."""
        run = state["run"]
        if "finished" in state:
            if self.ends_at is not None or not _is_due(mode, state):
                return
            run, state = run + 1, {}
        until = self.ends_at["until"] if self.ends_at is not None else None
        query = replace(rows.query, after=state.get("after"), until=until)
        async for records, position in self._batches(rows, query, str(run)):
            yield Batch(records, {"run": run, "after": position} if query.position else {"run": run})
        yield Batch((), {"run": run, "finished": int(time.time())})

    async def _read_new(self, rows: _Rows, state: dict[str, Any]) -> AsyncIterator[Batch]:
        async for records, position in self._batches(rows, replace(rows.query, after=state.get("position"))):
            yield Batch(records, {"position": position})

    async def _read_settled(self, rows: _Rows, state: dict[str, Any]) -> AsyncIterator[Batch]:
        """Rows up to the last one that is visible, once every transaction has ended that was running when it was: one
        of those may still commit rows before it. A batch that cannot wait for them leaves the rows to the next one."""
        assert self._session is not None
        position, pending = state.get("position"), state.get("pending")
        for _ in range(2):  # what a former batch has left, and what is visible now
            if pending is None:
                horizon = await self._session.horizon(replace(rows.query, after=position))
                if horizon is None:
                    return
                pending = {"until": horizon[0], "transaction": horizon[1]}
                repeated = True
            else:
                repeated = False
            if not await self._is_settled(pending["transaction"]):
                yield Batch((), {"position": position, "pending": pending})
                return
            query = replace(rows.query, after=position, until=pending["until"])
            async for records, reached in self._batches(rows, query):
                yield Batch(records, {"position": reached, "pending": pending})
            position, pending = pending["until"], None
            yield Batch((), {"position": position})
            if repeated:
                return

    async def _is_settled(self, transaction: int) -> bool:
        assert self._session is not None
        while not await self._session.is_settled(transaction):
            if self._patience <= 0:
                return False
            await asyncio.sleep(_SETTLING_SECONDS)
            self._patience -= _SETTLING_SECONDS
        return True

    async def _batches(
        self, rows: _Rows, query: Query, run: str = ""
    ) -> AsyncIterator[tuple[list[InputRecord], Position]]:
        """Records with the position of the last one."""
        assert self._session is not None
        records: list[InputRecord] = []
        size = 0
        position: Position = []
        async for row in self._session.rows(query):
            if records and size + len(row.body) > self.options.batch_bytes:
                yield records, position
                records, size = [], 0
            records.append(_record(row, rows, run))
            size += len(row.body)
            position = row.position
            if len(records) == self.options.batch_rows:
                yield records, position
                records, size = [], 0
        if records:
            yield records, position


class _OneTable:
    """How far a table or a query was read."""

    def __init__(self, rows: _Rows, breakpoint: Any) -> None:
        self._rows = rows
        self._state = breakpoint or {}

    def in_turn(self) -> list[_Rows]:
        return [self._rows]

    def state(self, rows: _Rows) -> dict[str, Any]:
        return self._state

    def reached(self, rows: _Rows, state: Any) -> Any:
        self._state = state
        return state


class _Tables:
    """How far each table was read, and the name of the one that comes first in the next reading."""

    def __init__(self, tables: Sequence[_Rows], breakpoint: Any) -> None:
        self._tables = tables
        stored = breakpoint or {"tables": {}, "next": ""}
        self._states: dict[str, dict[str, Any]] = {rows.name: stored["tables"].get(rows.name, {}) for rows in tables}
        names = list(self._states)
        self._first = names.index(stored["next"]) if stored["next"] in names else 0

    def in_turn(self) -> list[_Rows]:
        return [*self._tables[self._first :], *self._tables[: self._first]]

    def state(self, rows: _Rows) -> dict[str, Any]:
        """Empty before anything was read of it."""
        return self._states[rows.name]

    def reached(self, rows: _Rows, state: Any) -> Any:
        """The breakpoint now. A table that is not read to its end lets the one after it go first."""
        self._states[rows.name] = state
        following = self._tables[(self._tables.index(rows) + 1) % len(self._tables)]
        return {"tables": dict(self._states), "next": following.name}


def _record(row: Row, rows: _Rows, run: str) -> InputRecord:
    key = None
    if row.key:
        key = (row.key[0].encode() if len(row.key) == 1 else json.dumps(row.key)) or None
    identity = json.dumps([rows.digest, run, row.key, row.position]).decode() if rows.query.position else ""
    return InputRecord(row.body, key=key, identity=identity, source=rows.name)


def _is_due(mode: WholeTable, state: dict[str, Any]) -> bool:
    """Whether a table that was read to its end is read again."""
    return mode.repeat_minutes is not None and time.time() >= state["finished"] + mode.repeat_minutes * 60
