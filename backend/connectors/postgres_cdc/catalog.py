"""What the database says of its tables."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from backend.connectors.parts.database import opened_in_time
from backend.connectors.parts.pgoutput import Relation
from backend.connectors.parts.postgresql import PostgresqlSession
from backend.connectors.parts.postgresql_values import ValueConverter
from backend.connectors.postgres_cdc.connection import PostgresConnection
from backend.connectors.postgres_cdc.rows import Column, TableShape

_KEY = """
SELECT a.attname::text FROM pg_index i
CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indrelid = %s::oid AND i.indisprimary AND k.place <= i.indnkeyatts ORDER BY k.place
"""
_COLUMNS = """
SELECT attname::text, atttypid::bigint FROM pg_attribute
WHERE attrelid = %s::oid AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum
"""
# Columns and conditions of a publication's tables exist since PostgreSQL 15.
_PUBLISHED = """
SELECT schemaname::text, tablename::text, format('%%I.%%I', schemaname, tablename)::regclass::oid::bigint,
    to_jsonb(t) -> 'attnames', to_jsonb(t) ->> 'rowfilter'
FROM pg_publication_tables t WHERE pubname = %s ORDER BY 1, 2
"""


class PublishedTable(NamedTuple):
    """``condition`` is an SQL expression, empty for none."""

    shape: TableShape
    condition: str


class Catalog:
    """Shapes of tables, with the types of the database."""

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection
        self._values = ValueConverter()

    @asynccontextmanager
    async def session(self) -> AsyncIterator[PostgresqlSession]:
        session = await opened_in_time(self._connection, PostgresqlSession.open(self._connection))
        try:
            yield session
        finally:
            session.abort()

    async def shape(self, relation: Relation) -> TableShape:
        """Of a table as the output plugin describes it."""
        async with self.session() as session:
            key = await self._key(session, relation.oid)
            await self._values.learn([column.type for column in relation.columns], session.query)
        columns = [Column(c.name, self._values.of(c.type), c.key) for c in relation.columns]
        return self._shape(relation.schema, relation.table, columns, key)

    async def published(self, session: PostgresqlSession, publication: str) -> list[PublishedTable]:
        """The publication's tables, seen by a session."""
        tables = []
        for schema, table, oid, names, condition in await session.query(_PUBLISHED, [publication]):
            typed = await session.query(_COLUMNS, [oid])
            await self._values.learn([type for _, type in typed], session.query)
            columns = [Column(name, self._values.of(type)) for name, type in typed if names is None or name in names]
            shape = self._shape(schema, table, columns, await self._key(session, oid))
            tables.append(PublishedTable(shape, condition or ""))
        return tables

    @staticmethod
    def _shape(schema: str, table: str, columns: list[Column], key: list[str]) -> TableShape:
        """A key that was changed since, or is not published as a whole, is none."""
        known = {column.name for column in columns}
        return TableShape(schema, table, tuple(columns), tuple(key) if set(key) <= known else ())

    @staticmethod
    async def _key(session: PostgresqlSession, oid: int) -> list[str]:
        rows: list[Any] = await session.query(_KEY, [oid])
        return [name for (name,) in rows]
