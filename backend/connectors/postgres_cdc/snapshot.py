import hashlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, NamedTuple

import psycopg

from backend.connectors.parts.database import opened_in_time
from backend.connectors.parts.postgresql import PostgresqlSession
from backend.connectors.parts.replication import Replication, explained, lsn_text
from backend.connectors.postgres_cdc.catalog import Catalog, PublishedTable
from backend.connectors.postgres_cdc.connection import PostgresConnection
from backend.domain.capabilities import InputRecord
from backend.domain.message import utc_now


class Place(NamedTuple):
    """How far a snapshot has been read: the tables before this one, and of this one the rows up to the one with these
    values of the primary key. A table without one is read from its beginning. ``begin`` is where the slot began, which
    tells one snapshot from another."""

    begin: str
    schema: str
    table: str
    key: list[str]
    values: list[str]

    @classmethod
    def of(cls, stored: Any) -> "Place | None":
        return cls(*stored) if stored else None


class Snapshot:
    """The rows of a publication's tables at one position of the log: what was committed before it, and nothing else."""

    def __init__(self, connection: PostgresConnection, catalog: Catalog, system: str) -> None:
        self._connection = connection
        self._catalog = catalog
        self._system = system

    async def records(
        self, slot: str, begin: str, publication: str, reached: Place | None
    ) -> AsyncGenerator[tuple[InputRecord, Place], None]:
        """Every row after the place that was reached. At the first attempt the slot advances to the snapshot, so that
        no change is sent which it has. At a later one it stays, since rows that were sent before may have been changed
        or deleted since."""
        if reached is not None and reached.begin != begin:
            reached = None
        with explained(slot):
            async with self._catalog.session() as session:
                lsn = await self._import(session, f"{slot[:50]}_export")
                await self._advance(slot, begin, lsn)
                at = utc_now()
                tables = await self._catalog.published(session, publication)
                for table in sorted(tables, key=_name):
                    if reached is None or _name(table) >= (reached.schema, reached.table):
                        async for record, values in self._rows(session, table, reached, lsn_text(lsn), at):
                            yield record, Place(begin, *_name(table), list(table.shape.key), values)

    async def _import(self, session: PostgresqlSession, exporting: str) -> int:
        """Has the session see the snapshot, and returns its position. The slot that exports it is removed at once, with
        its connection: it would keep the log, too."""
        replication = await opened_in_time(self._connection, Replication.open(self._connection))
        try:
            lsn, name = await replication.export_snapshot(exporting)
            await session.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            await session.query(f"SET TRANSACTION SNAPSHOT '{name}'")
        finally:
            replication.abort()
        return lsn

    async def _advance(self, slot: str, begin: str, lsn: int) -> None:
        async with self._catalog.session() as session:
            await session.query(
                "SELECT pg_replication_slot_advance(slot_name, %s::pg_lsn) FROM pg_replication_slots "
                "WHERE slot_name = %s AND confirmed_flush_lsn = %s::pg_lsn AND confirmed_flush_lsn < %s::pg_lsn",
                [lsn_text(lsn), slot, begin, lsn_text(lsn)],
            )

    async def _rows(
        self, session: PostgresqlSession, table: PublishedTable, reached: Place | None, lsn: str, at: str
    ) -> AsyncIterator[tuple[InputRecord, list[str]]]:
        """Records, each with the values of its primary key."""
        shape = table.shape
        keys = [[column.name for column in shape.columns].index(name) for name in shape.key]
        columns = ", ".join(session.quoted(column.name) for column in shape.columns)
        name = f"{session.quoted(shape.schema)}.{session.quoted(shape.table)}"
        rest = _rest(session, table, reached)
        # Rows without a key are told apart by where they are stored.
        place = "" if shape.key else "tableoid, ctid" + (", " if columns else "")
        extra = 0 if shape.key else 2
        async for values in session.copied(f"COPY (SELECT {place}{columns} FROM {name}{rest}) TO STDOUT"):
            change = shape.snapshot(values[extra:])
            # A row that was changed before the snapshot is read again is another record.
            digest = hashlib.sha256(repr(values).encode()).hexdigest()[:32]
            source = f"{shape.schema}.{shape.table}"
            identity = f"{self._system}/snapshot/{source}/{digest}"
            body = shape.body(change, lsn=lsn, ts=at, xid=None)
            record = InputRecord(body, key=change.key, identity=identity, source=source)
            yield record, [str(values[number]) for number in keys]


def _name(table: PublishedTable) -> tuple[str, str]:
    return table.shape.schema, table.shape.table


def _rest(session: PostgresqlSession, table: PublishedTable, reached: Place | None) -> str:
    """The clauses that give the rows after the place that was reached, in the order of the primary key."""
    key = ", ".join(session.quoted(name) for name in table.shape.key)
    conditions = [f"({table.condition})".replace("%", "%%")] if table.condition else []
    # A key that is another one since begins anew.
    if key and reached is not None and (*_name(table), list(table.shape.key)) == reached[1:4]:
        conditions.append(f"({key}) > ({', '.join(_literal(value) for value in reached.values)})")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"{where} ORDER BY {key}" if key else where


def _literal(value: str) -> str:
    """COPY takes no parameters."""
    return psycopg.sql.quote(value).replace("%", "%%")
