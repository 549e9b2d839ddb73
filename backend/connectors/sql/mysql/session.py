"""Sessions of MySQL and MariaDB."""

import math
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

import aiomysql
import pymysql
from pymysql.constants import CLIENT, CR, FIELD_TYPE

from backend.connectors.parts.database import (
    CONNECT_SECONDS,
    Change,
    Column,
    ConnectionFailedError,
    Position,
    Query,
    Row,
    Session,
    SqlConnection,
    Table,
    conditions,
    configuration_error,
    route_to,
    runs,
)
from backend.connectors.sql.mysql.errors import connection_failure, translated
from backend.connectors.sql.mysql.values import decoded, encoded, from_driver, raw_json, text_of, to_driver
from backend.domain import json
from backend.domain.capabilities import BatchRefusedError, DeliveryError
from backend.domain.reasons import Reason

_COLUMNS = """
SELECT column_name, column_type,
    is_nullable = 'YES' OR column_default IS NOT NULL OR extra LIKE '%%auto_increment%%'
FROM information_schema.columns
WHERE table_schema = COALESCE(%s, DATABASE()) AND table_name = %s AND COALESCE(generation_expression, '') = ''
ORDER BY ordinal_position
"""
_KEYS = """
SELECT index_name, column_name
FROM information_schema.statistics
WHERE table_schema = COALESCE(%s, DATABASE()) AND table_name = %s AND non_unique = 0
ORDER BY index_name <> 'PRIMARY', index_name, seq_in_index
"""
# MariaDB keeps JSON as text with this check.
_JSON_CHECKS = """
SELECT check_clause
FROM information_schema.check_constraints
WHERE constraint_schema = COALESCE(%s, DATABASE()) AND table_name = %s AND check_clause LIKE 'json_valid(%%'
"""

_SESSION = (
    "SET time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO', "
    "net_write_timeout = 600"
)
"""A value that does not fit is an error; a reader may wait for Kafka."""


class _NamedContext(ssl.SSLContext):
    """Verifies the certificate of the host's name, although its address is connected to."""

    host = ""

    def wrap_bio(self, incoming: Any, outgoing: Any, server_side: bool = False, **_: Any) -> Any:  # type: ignore[override]
        return super().wrap_bio(incoming, outgoing, server_side, server_hostname=self.host)


class _Connection(aiomysql.Connection):  # type: ignore[misc]
    needs_tls = False

    async def _request_authentication(self) -> None:
        if self.needs_tls and not self.server_capabilities & CLIENT.SSL:
            raise pymysql.OperationalError(CR.CR_SSL_CONNECTION_ERROR, "the server does not offer TLS")
        await super()._request_authentication()


class MysqlSession(Session):
    """A connection in autocommit mode, in UTC and in strict mode."""

    def __init__(self, connection: SqlConnection, database: Any, close_route: Callable[[], None]):
        self._connection = connection
        self._database = database
        self._close_route = close_route
        self._packet = 0
        self._json: frozenset[str] = frozenset()

    @classmethod
    async def open(cls, connection: SqlConnection) -> Session:
        async with route_to(connection) as route:
            try:
                database = _Connection(
                    host=route.address,
                    port=route.port,
                    user=connection.user,
                    password=connection.password.get_secret_value(),
                    db=connection.database,
                    charset="utf8mb4",
                    connect_timeout=CONNECT_SECONDS,
                    autocommit=True,
                    program_name="headrace",
                    ssl=_tls(connection),
                )
                database.client_flag &= ~CLIENT.MULTI_STATEMENTS
                database.needs_tls = connection.tls in ("require", "verify")
            except ssl.SSLError:
                text = "The certificate of the authority is not a certificate in PEM format."
                raise ConnectionFailedError.of("ca", Reason.CONFIGURATION, text) from None
            session = cls(connection, database, route.close)
            try:
                await database._connect()
                await session._all(_SESSION)
                ((session._packet,),) = await session._all("SELECT @@max_allowed_packet")
            except BaseException as error:
                session.abort()
                if isinstance(error, pymysql.Error | OSError | UnicodeError | TimeoutError):
                    raise connection_failure(connection, error) from None
                raise
            return session

    async def greeting(self) -> str:
        with translated():
            ((count,),) = await self._all(
                "SELECT count(*) FROM information_schema.tables WHERE table_schema = DATABASE()"
            )
        return (
            f"Connected to {self._product()} {self._version()} as {self._connection.user}, database "
            f"{self._connection.database}; visible tables: {count}."
        )

    def _product(self) -> str:
        return "MariaDB" if "MariaDB" in self._database.server_version else "MySQL"

    def _version(self) -> str:
        return str(self._database.server_version.removeprefix("5.5.5-").partition("-")[0])

    def quoted(self, name: str) -> str:
        # A percent sign would begin a parameter.
        return "`" + name.replace("`", "``").replace("%", "%%") + "`"

    async def table(self, name: str) -> Table:
        parts = name.split(".", 1)
        where = [parts[0] if len(parts) == 2 else None, parts[-1]]
        with translated():
            columns = await self._all(_COLUMNS, where)
            if not columns:
                raise configuration_error(f"There is no table {name} in the database {self._connection.database}.")
            indexed = await self._all(_KEYS, where)
            checks = await self._all(_JSON_CHECKS, where) if self._product() == "MariaDB" else []
        keys: dict[str, tuple[str, ...]] = {}
        for index, column in indexed:
            keys[index] = (*keys.get(index, ()), column)
        self._json = frozenset(clause[len("json_valid(`") : -len("`)")] for (clause,) in checks)
        return Table(
            ".".join(map(self.quoted, parts)),
            {
                column: Column("json" if column in self._json else text_of(type_), bool(optional))
                for column, type_, optional in columns
            },
            keys.get("PRIMARY", ()),
            list(keys.values()),
        )

    async def write(self, table: Table, changes: Sequence[Change], key: tuple[str, ...]) -> None:
        with translated():
            await self._database.begin()
            try:
                for delete, columns, rows in runs(changes, key):
                    converted = [[to_driver(table, name, row[name]) for name in columns] for row in rows]
                    await self._write_run(table, delete, columns, converted, key)
                await self._database.commit()
            except (pymysql.Error, DeliveryError):
                await self._database.rollback()
                raise

    async def _write_run(
        self, table: Table, delete: bool, columns: Sequence[str], rows: list[list[Any]], key: tuple[str, ...]
    ) -> None:
        names = ", ".join(map(self.quoted, columns))
        before, after = f"INSERT INTO {table.sql} ({names}) VALUES ", ""
        if delete:
            before, after = f"DELETE FROM {table.sql} WHERE ({names}) IN (", ")"
        elif key:
            # Without another column, an existing row stays as it is.
            updated = [name for name in columns if name not in key] or list(key[:1])
            after = " ON DUPLICATE KEY UPDATE " + ", ".join(
                f"{self.quoted(name)} = VALUES({self.quoted(name)})" for name in updated
            )
        tuples = [
            f"({', '.join(self._literal(value) for value in row)})".encode(errors="surrogateescape") for row in rows
        ]
        before, after = before.replace("%%", "%"), after.replace("%%", "%")
        for values in self._in_packets(tuples, len(before) + len(after)):
            await self._database.query(before + b", ".join(values).decode(errors="surrogateescape") + after)

    def _in_packets(self, tuples: Sequence[bytes], around: int) -> Iterator[list[bytes]]:
        """In parts that the server takes as one statement."""
        room = self._packet - around - 1024
        part: list[bytes] = []
        size = 0
        for values in tuples:
            if len(values) > room:
                text = f"A row of {len(values):,} bytes is longer than the server's max_allowed_packet."
                raise BatchRefusedError("sql_1153", text, retryable=False, about_message=True)
            if part and size + len(values) > room:
                yield part
                part, size = [], 0
            part.append(values)
            size += len(values) + 2
        yield part

    async def estimate(self, query: Query) -> int:
        """The planner's rows of each table, multiplied as it would join them; of subqueries, those of the outermost."""
        where, parameters = self._where(query)
        statement = self._statement(f"EXPLAIN SELECT 1 FROM {query.source} AS r WHERE {where}", parameters)
        with translated():
            async with self._database.cursor(aiomysql.DictCursor) as cursor:
                await cursor.execute(statement)
                plan = await cursor.fetchall()
        outermost = [step for step in plan if step["id"] == plan[0]["id"]]
        return math.prod(int(step["rows"] or 0) for step in outermost)

    async def boundaries(self, query: Query, parts: int, rows: int) -> list[Position]:
        """Equal ranges of a key that is one whole number. The server samples nothing, so those of other keys would have
        to be counted."""
        if len(query.position) != 1:
            return []
        column = f"r.{self.quoted(query.position[0])}"
        with translated():
            ((first, last),) = await self._all(f"SELECT MIN({column}), MAX({column}) FROM {query.source} AS r")
        if not isinstance(first, int):
            return []
        ends = dict.fromkeys(first + (last - first) * number // parts for number in range(1, parts))
        return [[end] for end in ends]

    def _where(self, query: Query) -> tuple[str, list[Any]]:
        where, parameters = conditions(query, self.quoted, decoded)
        if query.settled is not None and query.settled[1]:
            where += f" AND r.{self.quoted(query.settled[0])} <= UTC_TIMESTAMP(6) - INTERVAL %s SECOND"
            parameters.append(query.settled[1])
        return where, parameters

    async def rows(self, query: Query) -> AsyncIterator[Row]:
        where, parameters = self._where(query)
        statement = f"SELECT r.* FROM {query.source} AS r WHERE {where}"
        if query.position:
            statement += " ORDER BY " + ", ".join(f"r.{self.quoted(name)}" for name in query.position)
        with translated():
            # Its close would read all the rows that are left: whoever stops early aborts the session.
            cursor = await self._database.cursor(aiomysql.SSCursor)
            await cursor.execute(self._statement(statement, parameters))
            names = [column[0] for column in cursor.description]
            if len(set(names)) < len(names):
                raise configuration_error("Two columns of the query have the same name.")
            for name in (*query.key, *query.position):
                if name not in names:
                    raise configuration_error(f"There is no column {name}; there are {', '.join(names)}.")
            converters = [self._converter(column) for column in cursor.description]
            keys = [names.index(name) for name in query.key]
            positions = [names.index(name) for name in query.position]
            while (row := await cursor.fetchone()) is not None:
                document = {name: convert(value) for name, convert, value in zip(names, converters, row, strict=True)}
                yield Row(
                    json.dumps(document),
                    tuple(text_of(from_driver(row[index])) for index in keys),
                    [encoded(row[index]) for index in positions],
                )

    def _converter(self, column: Sequence[Any]) -> Callable[[Any], Any]:
        name, type_, _, length, *_ = column
        if type_ == FIELD_TYPE.JSON or name in self._json:
            return raw_json
        if type_ == FIELD_TYPE.TINY and length == 1:
            return lambda value: None if value is None else bool(value)
        if type_ == FIELD_TYPE.BIT:
            if length == 1:
                return lambda value: None if value is None else value != b"\0"
            return lambda value: None if value is None else int.from_bytes(value, "big")
        if type_ == FIELD_TYPE.TIMESTAMP:
            return lambda value: f"{value.isoformat()}+00:00" if isinstance(value, datetime) else value
        return from_driver

    async def prepare_reading(self) -> None:
        with translated():
            await self._all("SET SESSION TRANSACTION READ ONLY")

    def abort(self) -> None:
        if self._database._writer is not None:
            self._database._writer.transport.abort()
        self._database.close()
        self._close_route()

    def _statement(self, statement: str, parameters: Sequence[Any]) -> str:
        return statement % tuple(map(self._literal, parameters))

    def _literal(self, value: Any) -> str:
        # The driver's own literal of bytes is broken.
        return f"x'{value.hex()}'" if isinstance(value, bytes) else str(self._database.escape(value))

    async def _all(self, statement: str, parameters: Sequence[Any] = ()) -> Sequence[Any]:
        cursor = await self._database.cursor()
        await cursor.execute(self._statement(statement, parameters))
        rows: Sequence[Any] = await cursor.fetchall()
        return rows


def _tls(connection: SqlConnection) -> ssl.SSLContext | None:
    """Without verification, the context takes any certificate. aiomysql uses it where the server offers TLS."""
    if connection.tls == "disable":
        return None
    context = _NamedContext(ssl.PROTOCOL_TLS_CLIENT)
    context.host = connection.host
    if connection.tls != "verify":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif connection.ca:
        context.load_verify_locations(cadata=connection.ca)
    else:
        context.load_default_certs()
    connection.load_into(context)
    return context
