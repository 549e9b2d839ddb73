import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import replace
from typing import Any, Literal

from backend.connectors.jdbc.connection import URL, JdbcConnection
from backend.connectors.jdbc.errors import connection_failure, failure, refusal
from backend.connectors.jdbc.process import JdbcError, JdbcProcess
from backend.connectors.jdbc.values import array, value_text
from backend.connectors.parts.database import (
    CONNECT_SECONDS,
    Change,
    Column,
    ConnectionFailedError,
    Query,
    Row,
    Session,
    Table,
    column_of,
    conditions,
    configuration_error,
    runs,
)
from backend.domain.capabilities import BatchRefusedError, DeliveryError
from backend.domain.reasons import Reason
from backend.network import outbound

_REQUEST_CHARACTERS = 2_000_000
"""A batch is handed to the Java process in requests of about this size: its memory is small."""
_ARRAY = 2003
"""The number of the type ARRAY in JDBC."""
_LENGTH = re.compile(r"\((\d+)\)$")


class JdbcSession(Session):
    """A connection by a driver, in a process of its own."""

    def __init__(self, connection: JdbcConnection, process: JdbcProcess, described: list[str]) -> None:
        self._connection = connection
        self._process = process
        self._product, self._version, self._driver, self._quote, _ = described

    @classmethod
    async def open(cls, connection: JdbcConnection, purpose: Literal["read", "write"] = "read") -> "JdbcSession":
        """Raises ConnectionFailedError."""
        await _check_hosts(connection)
        process = await JdbcProcess.start()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                described = await process.answer(
                    "open", connection.url, connection.user, connection.password.get_secret_value(), purpose
                )
            if purpose == "write" and not described[-1]:
                text = "The database has no transactions, so that a batch could be written in part: choose another one."
                raise ConnectionFailedError.of(URL, Reason.CONFIGURATION, text)
        except BaseException as error:
            process.kill()
            if isinstance(error, JdbcError):
                raise connection_failure(connection, error, process.guard.forbidden) from None
            if isinstance(error, TimeoutError):
                text = f"{connection.shown} does not answer within {CONNECT_SECONDS} seconds."
                raise ConnectionFailedError.of(URL, Reason.TIMEOUT, text) from None
            raise
        return cls(connection, process, described)

    async def greeting(self) -> str:
        user = f" as {self._connection.user}" if self._connection.user else ""
        version = self._version.partition("\n")[0]
        return f"Connected to {self._product} {version}{user}, by {self._driver}."

    async def table(self, name: str) -> Table:
        with self._translated():
            described = [answer async for answer in self._process.answers("table", name)]
        if not described:
            raise configuration_error(f"There is no table {name} at {self._connection.shown}.")
        (schema, table, *key), *parts = described
        columns = {
            column: Column(type_, bool(optional), code=int(code))
            for kind, column, type_, code, optional in (part for part in parts if part[0] == "column")
        }
        keys = [tuple(names) for kind, *names in parts if kind == "unique"]
        if key:
            keys.insert(0, tuple(key))
        return Table(".".join(self.quoted(part) for part in (schema, table) if part), columns, tuple(key), keys)

    async def write(self, table: Table, changes: Sequence[Change], key: tuple[str, ...]) -> None:
        """By statements that every database has. What another writer of the same rows may have caused, a deadlock or a
        key that exists by now, is tried once more before it is an error."""
        for is_last in (False, True):
            try:
                await self._write(table, changes, key)
                return
            except JdbcError as error:
                refused = self._refusal(table, changes, error)
                may_pass = not is_last and error.state.startswith(("23", "40") if key else "40")
                if may_pass or isinstance(refused, BatchRefusedError):  # otherwise the session is given up
                    with self._translated():
                        await self._process.answer("rollback")
                if not may_pass:
                    raise refused from None

    async def _write(self, table: Table, changes: Sequence[Change], key: tuple[str, ...]) -> None:
        """Raises JdbcError, and leaves the transaction to be rolled back."""
        for delete, columns, rows in runs(changes, key):
            for request in self._requests(table, delete, columns, rows, key):
                await self._process.answer("write", *request)
        await self._process.answer("commit")

    def _requests(
        self, table: Table, delete: bool, columns: Sequence[str], rows: list[dict[str, Any]], key: tuple[str, ...]
    ) -> Iterator[list[str]]:
        """Two statements, the columns, and rows. The second statement is for rows that the first one does not find."""
        others = [name for name in columns if name not in key]
        names = [*others, *(name for name in columns if name in key)]  # the order of the marks
        equal = " AND ".join(f"{self.quoted(name)} = ?" for name in names[len(others) :])
        insert = (
            f"INSERT INTO {table.sql} ({', '.join(map(self.quoted, names))}) VALUES ({', '.join('?' for _ in names)})"
        )
        if delete:
            first, second = f"DELETE FROM {table.sql} WHERE {equal}", ""
        elif not key:
            first, second = "", insert
        elif others:
            updates = ", ".join(f"{self.quoted(name)} = ?" for name in others)
            first, second = f"UPDATE {table.sql} SET {updates} WHERE {equal}", insert
        else:  # an existing row stays as it is
            first, second = f"SELECT COUNT(*) FROM {table.sql} WHERE {equal}", insert
        begin = [_with_marks(first), _with_marks(second), str(len(names))]
        for name in names:
            begin += (name, table.columns[name].type, str(table.columns[name].code))
        encoded = [[self._encoded(table.columns[name], row[name]) for name in names] for row in rows]
        if key:  # in one order, so that writers of the same rows do not wait for each other in a circle
            encoded.sort(key=lambda values: values[len(others) :])
        request, size = [*begin], 0
        for values in encoded:
            length = sum(map(len, values))
            if size and size + length > _REQUEST_CHARACTERS:
                yield request
                request, size = [*begin], 0
            request += values
            size += length
        yield request

    def _encoded(self, column: Column, value: Any) -> str:
        if isinstance(value, list) and column.code == _ARRAY and self._driver.startswith("PostgreSQL"):
            return value_text(array(value))
        return value_text(value)

    def _refusal(self, table: Table, changes: Sequence[Change], error: JdbcError) -> DeliveryError:
        refused = refusal(error)
        if not isinstance(refused, BatchRefusedError) or error.state != "22001" or len(changes) > 1:
            return refused
        for name, value in changes[0].row.items():  # not every database names the column of a text that is too long
            column = table.columns[name]
            limit = _LENGTH.search(column.type)
            if limit and isinstance(value, str) and len(value) > int(limit[1]):
                text = f"Column {name} takes {column.type}: {refused}"
                return BatchRefusedError(refused.reason, text, retryable=False, about_message=True)
        return refused

    async def rows(self, query: Query) -> AsyncIterator[Row]:
        resolved, names = await self._resolved(query)
        statement, parameters = self._statement("r.*", resolved)
        if resolved.position:
            statement += f" ORDER BY {', '.join(f'r.{self.quoted(name)}' for name in resolved.position)}"
        indexes = [",".join(str(names.index(name)) for name in part) for part in (resolved.key, resolved.position)]
        keys = 1 + len(resolved.key)
        with self._translated():
            async with aclosing(
                self._process.answers("rows", _with_marks(statement, parameters), *indexes, *parameters)
            ) as rows:
                async for row in rows:
                    yield Row(row[0].encode(), tuple(row[1:keys]), row[keys:])

    async def estimate(self, query: Query) -> int | None:
        """By counting, for some seconds."""
        resolved, _ = await self._resolved(query)
        statement, parameters = self._statement("COUNT(*)", resolved)
        try:
            return int((await self._process.answer("count", _with_marks(statement, parameters), *parameters))[0])
        except JdbcError:
            return None

    async def prepare_reading(self) -> None:
        """The driver was told when it connected."""

    def abort(self) -> None:
        self._process.kill()

    def _statement(self, selected: str, query: Query) -> tuple[str, list[str]]:
        # No AS, which Oracle does not take before the alias of a table.
        statement = f"SELECT {selected} FROM {query.source} r"
        if not query.position:
            return statement, []
        where, parameters = conditions(query, self.quoted, lambda value: value)
        if query.settled is not None and query.settled[1]:
            column, seconds = query.settled
            moment = f"{{fn TIMESTAMPADD(SQL_TSI_SECOND, -{seconds}, CURRENT_TIMESTAMP)}}"
            where += f" AND r.{self.quoted(column)} <= {moment}"
        return f"{statement} WHERE {where}", parameters

    async def _resolved(self, query: Query) -> tuple[Query, list[str]]:
        """The query with the names of columns as the database writes them, and all names. Raises DeliveryError."""
        with self._translated():
            names = await self._process.answer("columns", _with_marks(f"SELECT r.* FROM {query.source} r WHERE 1 = 0"))
        if len(set(names)) < len(names):
            raise configuration_error("Two columns of the query have the same name.")
        settled = (_column(query.settled[0], names), query.settled[1]) if query.settled else None
        key, position = (tuple(_column(name, names) for name in part) for part in (query.key, query.position))
        return replace(query, key=key, position=position, settled=settled), names

    def quoted(self, name: str) -> str:
        quote = self._quote
        # A percent sign would begin a parameter.
        return f"{quote}{name.replace(quote, quote * 2) if quote else name}{quote}".replace("%", "%%")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except JdbcError as error:
            raise failure(error) from None


def _with_marks(statement: str, parameters: Iterable[str] = ()) -> str:
    return statement % tuple("?" for _ in parameters)


def _column(name: str, names: list[str]) -> str:
    """Raises DeliveryError when there is none."""
    column = column_of(name, names)
    if column is None:
        raise configuration_error(f"There is no column {name}; there are {', '.join(names)}.")
    return column


async def _check_hosts(connection: JdbcConnection) -> None:
    """Before the driver looks them up: it may not use the guard for every kind of socket."""
    hosts, unknown = connection.hosts().get(URL, []), []
    for host in hosts:
        try:
            await asyncio.to_thread(outbound.outbound_policy().address_of, host)
        except outbound.ForbiddenAddressError as error:
            raise ConnectionFailedError.of(URL, Reason.FORBIDDEN, str(error), retryable=False) from None
        except OSError:
            unknown.append(host)
    if hosts and unknown == hosts:
        text = f"The host {hosts[0]} is not known: check its spelling."
        raise ConnectionFailedError.of(URL, Reason.DNS, text)
