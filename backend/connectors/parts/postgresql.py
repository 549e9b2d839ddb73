"""PostgreSQL: rows become JSON, and JSON becomes rows, in the server, so that it alone decides on types."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import AsyncConnection, errors

from backend.connectors.parts.database import (
    CONNECT_SECONDS,
    Change,
    Column,
    ConnectionFailedError,
    DatabaseConnection,
    Position,
    Query,
    Route,
    Row,
    Session,
    Table,
    conditions,
    configuration_error,
    route_to,
    runs,
    without_zone,
)
from backend.connectors.parts.tls import pem_file
from backend.domain import json
from backend.domain.capabilities import BatchRefusedError, DeliveryError
from backend.domain.reasons import Reason

_ROWS_IN_MEMORY = 16
"""Rows that the client library takes from the socket at once."""

_CANCEL_SECONDS = 1.0

_SAMPLED_ROWS = 20_000
"""They tell the quantiles of a table's keys to some hundredths, although whole pages are sampled."""

_TLS_REQUEST = (8).to_bytes(4, "big") + (80877103).to_bytes(4, "big")

_SSL_MODES = {"disable": "disable", "prefer": "prefer", "require": "require", "verify": "verify-full"}

_COLUMNS = """
SELECT attname::text, format_type(atttypid, atttypmod), NOT attnotnull OR atthasdef OR attidentity <> '',
    attidentity <> 'a'
FROM pg_attribute
WHERE attrelid = %s::oid AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
ORDER BY attnum
"""
_KEYS = """
SELECT i.indisprimary, array_agg(a.attname::text ORDER BY k.place)
FROM pg_index i
CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indrelid = %s::oid AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL AND k.place <= i.indnkeyatts
GROUP BY i.indexrelid, i.indisprimary
ORDER BY i.indisprimary DESC, i.indexrelid
"""
_RIGHTS = """
SELECT count(*) FILTER (WHERE has_table_privilege(oid, 'SELECT')),
    count(*) FILTER (WHERE has_table_privilege(oid, 'INSERT'))
FROM pg_class
WHERE relkind IN ('r', 'p', 'v', 'm', 'f')
    AND relnamespace NOT IN (SELECT oid FROM pg_namespace WHERE nspname IN ('pg_catalog', 'information_schema'))
"""

_DATA_CLASSES = {"22", "23", "44"}
"""SQLSTATE classes: data exceptions, violated constraints, and rows that a view rejects."""


class _Connection(AsyncConnection[Any]):
    async def _try_cancel(self, *, timeout: float = _CANCEL_SECONDS) -> None:
        """Called when nobody waits for a statement any more: it is cancelled if the server answers soon, and the
        connection is closed. psycopg would wait for the server's last word, much longer than a delivery may take."""
        await super()._try_cancel(timeout=_CANCEL_SECONDS)
        self.pgconn.finish()
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError


async def connected(connection: DatabaseConnection, **parameters: Any) -> tuple[_Connection, Callable[[], None]]:
    """A connection in autocommit mode, in UTC, with libpq's ``parameters``, and what closes the way to the server.
    Raises ConnectionFailedError."""
    async with route_to(connection) as route:
        with _authorities(connection) as authorities, _client_certificate(connection) as client_certificate:
            try:
                database = await _Connection.connect(
                    host=connection.host,  # the name in its certificate
                    hostaddr=route.address,
                    port=route.port,
                    dbname=connection.database,
                    user=connection.user,
                    password=connection.password.get_secret_value(),
                    sslmode=_SSL_MODES[connection.tls],
                    sslrootcert=authorities,
                    **client_certificate,
                    passfile="/dev/null",
                    connect_timeout=CONNECT_SECONDS,
                    application_name="headrace",
                    client_encoding="utf8",
                    autocommit=True,
                    # Prepared statements do not pass connection poolers.
                    prepare_threshold=None,
                    **parameters,
                )
            except psycopg.Error as error:
                failed = _connection_failure(connection, error)
                if failed.reason == Reason.TLS and (why := await _certificate_fault(connection, route)):
                    text = f"The certificate of {connection.host} is not trusted: {why}."
                    failed = ConnectionFailedError.of("tls", Reason.TLS, text)
                raise failed from None
        try:
            with translated():
                await database.execute("SET TimeZone = 'UTC'; SET DateStyle = 'ISO'")
        except BaseException:
            database.pgconn.finish()
            raise
        return database, route.close


class PostgresqlSession(Session):
    """A connection in autocommit mode, in UTC."""

    def __init__(self, connection: DatabaseConnection, database: AsyncConnection[Any], close_route: Callable[[], None]):
        self._connection = connection
        self._database = database
        self._close_route = close_route

    @classmethod
    async def open(cls, connection: DatabaseConnection) -> "PostgresqlSession":
        return cls(connection, *await connected(connection))

    async def greeting(self) -> str:
        with translated():
            readable, writable = await self._row(_RIGHTS)
        version = self._database.info.parameter_status("server_version") or ""
        return (
            f"Connected to PostgreSQL {version.split()[0]} as {self._connection.user}, database "
            f"{self._connection.database}; tables that can be read: {readable}, written: {writable}."
        )

    def quoted(self, name: str) -> str:
        # A percent sign would begin a parameter.
        return '"' + name.replace('"', '""').replace("%", "%%") + '"'

    async def table(self, name: str) -> Table:
        quoted = ".".join(map(self.quoted, name.split(".", 1)))
        with translated():
            (oid,) = await self._row("SELECT to_regclass(%s)::oid", [quoted.replace("%%", "%")])
            if oid is None:
                raise configuration_error(f"There is no table {name} in the database {self._connection.database}.")
            columns = await self.query(_COLUMNS, [oid])
            keys = await self.query(_KEYS, [oid])
        return Table(
            quoted,
            {column: Column(*described) for column, *described in columns},
            next((tuple(columns) for primary, columns in keys if primary), ()),
            [tuple(columns) for _, columns in keys],
        )

    async def write(self, table: Table, changes: Sequence[Change], key: tuple[str, ...]) -> None:
        try:
            with translated():
                async with self._database.transaction():
                    for delete, columns, rows in runs(changes, key):
                        statement = self._deletion(table, key) if delete else self._insertion(table, columns, key)
                        await self._database.execute(statement, [_as_json(table, rows)])
        except BatchRefusedError as error:
            if len(changes) == 1:
                raise await self._blaming(table, changes[0].row, error) from None
            raise

    def _insertion(self, table: Table, columns: Sequence[str], key: tuple[str, ...]) -> str:
        names = ", ".join(map(self.quoted, columns))
        statement = (
            f"INSERT INTO {table.sql} ({names}) OVERRIDING SYSTEM VALUE SELECT {names} FROM {self._set(table, columns)}"
        )
        if not key:
            return statement
        updated = [name for name in columns if name not in key and table.columns[name].updatable]
        updates = [f"{name} = EXCLUDED.{name}" for name in self._names(updated)]
        action = f"UPDATE SET {', '.join(updates)}" if updates else "NOTHING"
        return f"{statement} ON CONFLICT ({', '.join(self._names(key))}) DO {action}"

    def _deletion(self, table: Table, key: tuple[str, ...]) -> str:
        equal = " AND ".join(f"t.{name} = n.{name}" for name in self._names(key))
        return f"DELETE FROM {table.sql} AS t USING {self._set(table, key)} WHERE {equal}"

    def _names(self, columns: Sequence[str]) -> list[str]:
        return [self.quoted(column) for column in columns]

    def _set(self, table: Table, columns: Sequence[str]) -> str:
        """The rows of the parameter, a JSON array, with the table's types."""
        types = [f"{self.quoted(name)} {table.columns[name].type.replace('%', '%%')}" for name in columns]
        return f"json_to_recordset(%s::json) AS n ({', '.join(types)})"

    async def _blaming(self, table: Table, row: dict[str, Any], error: BatchRefusedError) -> DeliveryError:
        """The error with the column that does not take its value: PostgreSQL does not name it."""
        for name, value in row.items():
            try:
                await self._database.execute(
                    f"SELECT * FROM {self._set(table, [name])}", [_as_json(table, [{name: value}])]
                )
            except psycopg.DataError as misfit:
                expected = f"Column {name} takes {table.columns[name].type}: {primary(misfit)}"
                return BatchRefusedError(error.reason, f"{expected}.", retryable=False, about_message=True)
        return error

    async def rows(self, query: Query) -> AsyncIterator[Row]:
        where, parameters = self._where(query)
        wanted = [f"r.{self.quoted(name)}::text" for name in (*query.key, *query.position)]
        ordered = [f"r.{self.quoted(name)}" for name in query.position]
        statement = f"SELECT {', '.join(['row_to_json(r)::text', *wanted])} FROM {query.source} AS r WHERE {where}"
        if ordered:
            statement += f" ORDER BY {', '.join(ordered)}"
        keys = 1 + len(query.key)
        with translated():
            stream = self._database.cursor().stream(statement.encode(), parameters, size=_ROWS_IN_MEMORY)
            async for row in stream:
                yield Row(row[0].encode(), row[1:keys], list(row[keys:]))

    async def estimate(self, query: Query) -> int:
        where, parameters = self._where(query)
        statement = f"EXPLAIN (FORMAT JSON) SELECT 1 FROM {query.source} AS r WHERE {where}"
        with translated():
            (plan,) = await self._row(statement, parameters)
        return int(plan[0]["Plan"]["Plan Rows"])

    async def boundaries(self, query: Query, parts: int, rows: int) -> list[Position]:
        """Quantiles of a sample of the pages, so that gaps between keys do not matter."""
        where, parameters = self._where(query)
        columns = [f"r.{self.quoted(name)}" for name in query.position]
        names = [f"c{number}" for number in range(len(columns))]
        percent = min(100.0, 100.0 * _SAMPLED_ROWS / rows)
        sample = (
            f"SELECT {', '.join(f'{column} AS {name}' for column, name in zip(columns, names, strict=True))}, "
            f"ntile({parts}) OVER (ORDER BY {', '.join(columns)}) AS part "
            f"FROM {query.source} AS r TABLESAMPLE SYSTEM ({percent:.9f}) WHERE {where}"
        )
        statement = (
            f"SELECT DISTINCT ON (s.part) {', '.join(f's.{name}::text' for name in names)} FROM ({sample}) AS s "
            f"WHERE s.part < {parts} ORDER BY s.part, {', '.join(f's.{name} DESC' for name in names)}"
        )
        with translated():
            try:
                last = await self.query(statement, parameters)
            except errors.WrongObjectType:  # a view has no pages
                return []
        return [list(position) for position in dict.fromkeys(last)]

    async def horizon(self, query: Query) -> tuple[Position, int] | None:
        where, parameters = self._where(query)
        columns = [f"r.{self.quoted(name)}" for name in query.position]
        descending = ", ".join(f"{column} DESC" for column in columns)
        texts = ", ".join(f"{column}::text" for column in columns)
        statement = f"SELECT {texts} FROM {query.source} AS r WHERE {where} ORDER BY {descending} LIMIT 1"
        with translated():
            last = await self.query(statement, parameters)
            if not last:
                return None
            # A new number, since a snapshot does not tell the highest of those that are running. Taken after the
            # position, it is above that of every transaction that may still commit a row before it.
            (number,) = await self._row("SELECT pg_current_xact_id()::text::bigint")
        return list(last[0]), number

    async def is_settled(self, number: int) -> bool:
        with translated():
            (oldest,) = await self._row("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
        return bool(oldest > number)

    def _where(self, query: Query) -> tuple[str, list[Any]]:
        where, parameters = conditions(query, self.quoted, lambda value: value)
        if query.settled is not None and query.settled[1]:
            where += f" AND r.{self.quoted(query.settled[0])} <= now() - %s * interval '1 second'"
            parameters.append(query.settled[1])
        return where, parameters

    async def prepare_reading(self) -> None:
        with translated():
            await self._database.execute("SET default_transaction_read_only = on")

    def abort(self) -> None:
        self._database.pgconn.finish()
        self._close_route()

    async def query(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """The rows that a statement returns. Raises psycopg's errors."""
        cursor = await self._database.execute(statement.encode(), parameters)
        return await cursor.fetchall() if cursor.description else []

    async def copied(self, statement: str) -> AsyncIterator[Sequence[str | None]]:
        """Each row of a COPY TO STDOUT, as the server writes its values. Raises psycopg's errors."""
        # Without parameters, psycopg leaves doubled percent signs as they are.
        async with self._database.cursor().copy(statement.replace("%%", "%").encode()) as copy:
            async for row in copy.rows():
                yield row

    async def _row(self, statement: str, parameters: Sequence[Any] = ()) -> Any:
        return (await self.query(statement, parameters))[0]


def _as_json(table: Table, rows: Sequence[dict[str, Any]]) -> str:
    plain = {name for name in rows[0] if table.columns[name].type.endswith("without time zone")}
    if plain:
        rows = [{name: without_zone(value) if name in plain else value for name, value in row.items()} for row in rows]
    return json.dumps(rows).decode()


@contextmanager
def _authorities(connection: DatabaseConnection) -> Iterator[str]:
    """A file with the certificates that are trusted; libpq reads them while it connects."""
    if not connection.ca:
        yield (ssl.get_default_verify_paths().cafile or "system") if connection.tls == "verify" else ""
        return
    with pem_file(connection.ca) as file:
        yield file


@contextmanager
def _client_certificate(connection: DatabaseConnection) -> Iterator[dict[str, Any]]:
    """libpq's parameters for it, with files that it reads while it connects."""
    if connection.key is None:
        yield {}
        return
    with pem_file(connection.certificate) as certificate, pem_file(connection.key.get_secret_value()) as key:
        yield {"sslcert": certificate, "sslkey": key, "sslpassword": connection.plain_key_password}


@contextmanager
def translated() -> Iterator[None]:
    """PostgreSQL's errors as those of a session."""
    try:
        yield
    except errors.CardinalityViolation:
        # Two values are the same key to the server, such as 1 and "1".
        raise BatchRefusedError(
            "sql_21000", "A key occurs twice in a batch.", retryable=False, about_message=True
        ) from None
    except psycopg.Error as error:
        raise failure(error) from None


def failure(error: psycopg.Error) -> DeliveryError:
    """An error of a statement as one of a session."""
    state, text = error.sqlstate or "", primary(error)
    if state[:2] in _DATA_CLASSES:
        column = f"Column {error.diag.column_name}: " if error.diag.column_name else ""
        return BatchRefusedError(f"sql_{state}", f"{column}{text}.", retryable=False, about_message=True)
    if state.startswith(("42", "3F", "0A")):
        return configuration_error(f"PostgreSQL rejects the statement: {text}.")
    if state.startswith("25"):
        return configuration_error(f"PostgreSQL does not allow writing here: {text}.")
    if state:  # deadlocks, serialization failures, full disks, a server that is shutting down
        return DeliveryError(f"sql_{state}", f"PostgreSQL: {text}.", retryable=True)
    return DeliveryError(Reason.CONNECTION, f"The connection to PostgreSQL is lost: {text}.", retryable=True)


def primary(error: psycopg.Error) -> str:
    """The server's sentence, without its period."""
    return (error.diag.message_primary or str(error).partition("\n")[0]).rstrip(".")


async def _certificate_fault(connection: DatabaseConnection, route: Route) -> str:
    """What is wrong with the server's certificate, which libpq does not tell; empty if nothing is found."""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
        context = ssl.create_default_context(cadata=connection.ca or None)
        reader, writer = await asyncio.open_connection(route.address, route.port)
        try:
            writer.write(_TLS_REQUEST)
            if await reader.readexactly(1) == b"S":
                await writer.start_tls(context, server_hostname=connection.host)
        except ssl.SSLCertVerificationError as error:
            return error.verify_message.rstrip(".")
        finally:
            writer.transport.abort()
    return ""


def _connection_failure(connection: DatabaseConnection, error: psycopg.Error) -> ConnectionFailedError:
    """libpq gives no code when a connection fails, so its text decides which field is to blame."""
    text = " ".join(str(error).rpartition("failed: ")[2].split()).removeprefix("FATAL: ").strip().rstrip(".")
    server = f"{connection.host}:{connection.server_port}"
    for word, field, reason, sentence in (
        ("password", "password", Reason.CONFIGURATION, f"PostgreSQL rejects the user name or the password: {text}."),
        ("authentication", "user", Reason.CONFIGURATION, f"PostgreSQL rejects the user: {text}."),
        ("pg_hba.conf", "user", Reason.CONFIGURATION, f"PostgreSQL does not admit the user from here: {text}."),
        ("certificate", "tls", Reason.TLS, f"No trusted TLS connection to {server}: {text}."),
        ("SSL", "tls", Reason.TLS, f"No TLS connection to {server}: {text}."),
        ('database "', "database", Reason.CONFIGURATION, f"The database cannot be used: {text}."),
        ("WAL sender", "user", Reason.CONFIGURATION, f"PostgreSQL rejects the user: {text}."),
        ('role "', "user", Reason.CONFIGURATION, f"PostgreSQL rejects the user: {text}."),
    ):
        if word in text:
            return ConnectionFailedError.of(field, reason, sentence)
    return ConnectionFailedError.of("host", Reason.CONNECTION, f"No connection to PostgreSQL at {server}: {text}.")
