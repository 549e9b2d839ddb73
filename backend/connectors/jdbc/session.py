import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import replace

from backend.connectors.jdbc.connection import URL, JdbcConnection
from backend.connectors.jdbc.process import JdbcError, JdbcProcess, installed_drivers
from backend.connectors.parts.database import (
    CONNECT_SECONDS,
    ConnectionFailedError,
    Query,
    ReadingSession,
    Row,
    Table,
    conditions,
    configuration_error,
)
from backend.domain.capabilities import DeliveryError
from backend.domain.reasons import Reason
from backend.network import outbound

_LOGIN_CODES = {1017, 18456}
"""Of Oracle and SQL Server, whose SQLSTATE does not tell."""
_LOST = {"08", "57"}


class JdbcSession(ReadingSession):
    """A connection by a driver, in a process of its own."""

    def __init__(self, connection: JdbcConnection, process: JdbcProcess, described: list[str]) -> None:
        self._connection = connection
        self._process = process
        self._product, self._version, self._driver, self._quote = described

    @classmethod
    async def open(cls, connection: JdbcConnection) -> "JdbcSession":
        """Raises ConnectionFailedError."""
        await _check_hosts(connection)
        process = await JdbcProcess.start()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                described = await process.answer(
                    "open", connection.url, connection.user, connection.password.get_secret_value()
                )
        except BaseException as error:
            process.kill()
            if isinstance(error, JdbcError):
                raise _connection_failure(connection, error, process.guard.forbidden) from None
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
            described = await self._process.answer("table", name)
        if not described:
            raise configuration_error(f"There is no table {name} at {self._connection.shown}.")
        schema, table, *key = described
        return Table(".".join(self._quoted(part) for part in (schema, table) if part), {}, tuple(key), [])

    async def rows(self, query: Query) -> AsyncIterator[Row]:
        resolved, names = await self._resolved(query)
        statement, parameters = self._statement("r.*", resolved)
        if resolved.position:
            statement += f" ORDER BY {', '.join(f'r.{self._quoted(name)}' for name in resolved.position)}"
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
        where, parameters = conditions(query, self._quoted, lambda value: value)
        if query.settled is not None and query.settled[1]:
            column, seconds = query.settled
            moment = f"{{fn TIMESTAMPADD(SQL_TSI_SECOND, -{seconds}, CURRENT_TIMESTAMP)}}"
            where += f" AND r.{self._quoted(column)} <= {moment}"
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

    def _quoted(self, name: str) -> str:
        quote = self._quote
        # A percent sign would begin a parameter.
        return f"{quote}{name.replace(quote, quote * 2) if quote else name}{quote}".replace("%", "%%")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except JdbcError as error:
            raise _failure(error) from None


def _with_marks(statement: str, parameters: Iterable[str] = ()) -> str:
    return statement % tuple("?" for _ in parameters)


def _column(name: str, names: list[str]) -> str:
    """Databases differ in the case in which they keep names."""
    if name in names:
        return name
    alike = [one for one in names if one.lower() == name.lower()]
    if len(alike) != 1:
        raise configuration_error(f"There is no column {name}; there are {', '.join(names)}.")
    return alike[0]


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


def _connection_failure(connection: JdbcConnection, error: JdbcError, forbidden: str) -> ConnectionFailedError:
    text = _sentence(error)
    if forbidden:
        return ConnectionFailedError.of(URL, Reason.FORBIDDEN, forbidden, retryable=False)
    if "No suitable driver" in text:
        drivers = ", ".join(installed_drivers())
        text = f"No driver of this installation takes this address; there are {drivers}."
        return ConnectionFailedError.of(URL, Reason.CONFIGURATION, text)
    if error.state.startswith("28") or error.code in _LOGIN_CODES:
        text = f"The database rejects the user name or the password: {text}."
        return ConnectionFailedError.of("password", Reason.CONFIGURATION, text)
    if error.state.startswith("3D"):
        return ConnectionFailedError.of(URL, Reason.CONFIGURATION, f"The database cannot be used: {text}.")
    return ConnectionFailedError.of(URL, Reason.CONNECTION, f"No connection to {connection.shown}: {text}.")


def _failure(error: JdbcError) -> DeliveryError:
    text, state = _sentence(error), error.state
    if state == "memory":
        text = f"Java's memory does not suffice: have the driver fetch rows in portions ({text})."
        return configuration_error(text)
    if state.startswith(("42", "S0", "22", "3F")):
        return configuration_error(f"The database rejects the statement: {text}.")
    if not state or state[:2] in _LOST:
        return DeliveryError(Reason.CONNECTION, f"The connection to the database is lost: {text}.", retryable=True)
    return DeliveryError(f"sql_{state}", f"The database: {text}.", retryable=True)


def _sentence(error: JdbcError) -> str:
    """The first line of the driver's message, without its period, and what caused it."""
    text = str(error).strip().partition("\n")[0].rstrip(". ")
    cause = error.cause.removeprefix("SOCKS: ")
    return text.replace("SOCKS: ", "") if cause in text else f"{text} ({cause})"
