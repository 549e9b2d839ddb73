"""What connectors of databases need of one: a connection, what it says of a table, rows out and rows in.

``Session`` is one connection; each dialect has a class of it.
"""

import asyncio
import contextlib
import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import BeforeValidator, Field, SecretStr

from backend.connectors.parts.ssh import HostKey, PrivateKey, SshError, connected
from backend.connectors.parts.tls import ClientCertificate, wrapped_pem
from backend.domain.capabilities import BatchRefusedError, Connection, DeliveryError
from backend.domain.model import ADVANCED, StrictModel
from backend.domain.reasons import Reason
from backend.network import outbound

CONNECT_SECONDS = 10

OpenedT = TypeVar("OpenedT")


class SshTunnel(StrictModel):
    """An SSH server through which the database is reached."""

    host: str = Field(min_length=1, description="Host of the SSH server.", examples=["bastion.example.com"])
    port: int = Field(22, ge=1, le=65_535, description="Port of the SSH server.")
    user: str = Field(min_length=1, description="User name at the SSH server.")
    private_key: PrivateKey
    host_key: HostKey


class _Server(Connection):
    host: str = Field(min_length=1, description="Host of the database server.", examples=["db.example.com"])
    port: int | None = Field(
        None, ge=1, le=65_535, description="Port of the server; 5432 for PostgreSQL and 3306 for MySQL by default."
    )
    database: str = Field(min_length=1, description="Name of the database.", examples=["shop"])
    user: str = Field(min_length=1, description="User name.")
    password: SecretStr = Field(description="Password.")
    tls: Literal["disable", "prefer", "require", "verify"] = Field(
        "verify",
        description="Encryption: none, if the server offers it, always, or always and with a certificate that is "
        "verified.",
    )
    ca: Annotated[str, BeforeValidator(wrapped_pem)] = Field(
        "",
        description="Certificate of the authority that signed the server's, in PEM format. Without it, the "
        "authorities that the operating system trusts.",
        json_schema_extra=ADVANCED,
    )


class DatabaseConnection(ClientCertificate, _Server):  # in this order of bases, forms begin with the server
    """How a database is reached, of whatever kind it is."""

    ssh_tunnel: SshTunnel | None = Field(
        None, description="Reaches the server through SSH.", json_schema_extra=ADVANCED
    )

    def hosts(self) -> dict[str, list[str]]:
        return {"ssh_tunnel": [self.ssh_tunnel.host]} if self.ssh_tunnel else {"host": [self.host]}

    def far_hosts(self) -> dict[str, list[str]]:
        return {"host": [self.host]} if self.ssh_tunnel else {}

    @property
    def server_port(self) -> int:
        return self.port or 5432

    @property
    def shown(self) -> str:
        """For people, without credentials."""
        return f"{self.database} at {self.host}:{self.server_port}"


class _Dialect(Connection):
    dialect: Literal["postgresql", "mysql"] = Field(
        description="Kind of database; mysql is MySQL or MariaDB.", examples=["postgresql"]
    )


class SqlConnection(DatabaseConnection, _Dialect):  # in this order of bases, forms begin with the dialect
    """A database."""

    @property
    def server_port(self) -> int:
        return self.port or (5432 if self.dialect == "postgresql" else 3306)


class ConnectionFailedError(DeliveryError):
    """``field`` is the field of the connection that is to blame."""

    field = "host"

    @classmethod
    def of(cls, field: str, reason: str, message: str, *, retryable: bool = True) -> "ConnectionFailedError":
        error = cls(reason, message, retryable=retryable)
        error.field = field
        return error


def configuration_error(text: str) -> DeliveryError:
    """A fault of table, rights or options: whoever corrects it wants the messages delivered afterwards."""
    return DeliveryError(Reason.CONFIGURATION, text, retryable=True)


def message_error(text: str, reason: str = "sql_value") -> DeliveryError:
    """A fault of one message."""
    return DeliveryError(reason, text, retryable=False, about_message=True)


class Column(NamedTuple):
    """``type`` is as the database writes it. An optional column may be left out of an INSERT; one that cannot be
    updated takes a value in an INSERT alone. ``code`` is the type's number in JDBC, where that is used."""

    type: str
    optional: bool
    updatable: bool = True
    code: int = 0


def column_of(name: str, columns: Collection[str]) -> str | None:
    """The column of that name or, since databases differ in the case in which they keep names, the only one that
    differs from it in nothing but case."""
    if name in columns:
        return name
    alike = [column for column in columns if column.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


class Table(NamedTuple):
    """``sql`` is the quoted name. ``columns`` are those that can be written, by name and in order; ``keys`` the columns
    of its primary key and its other unique indexes."""

    sql: str
    columns: dict[str, Column]
    primary_key: tuple[str, ...]
    keys: list[tuple[str, ...]]


class Change(NamedTuple):
    """A row to write, or the key of one to delete."""

    delete: bool
    row: dict[str, Any]


Position = list[Any]
"""The values of the columns that rows are read by, as JSON."""


@dataclass(frozen=True)
class Query:
    """Which rows are read: those of ``source`` after one position and up to another, in the order of ``position``.

    ``settled`` names a column with a timestamp, and the number of seconds for which a row is left to settle.
    """

    source: str
    key: tuple[str, ...]
    position: tuple[str, ...]
    after: Position | None = None
    until: Position | None = None
    settled: tuple[str, int] | None = None


class Row(NamedTuple):
    body: bytes
    key: tuple[str, ...]
    position: Position


class ReadingSession(ABC):
    """One connection to a database, from which rows are read. Its methods raise DeliveryError."""

    @abstractmethod
    async def greeting(self) -> str:
        """Server, database, user and rights, in a sentence."""

    @abstractmethod
    async def table(self, name: str) -> Table:
        """The table or view of that name, which may have a schema in front."""

    @abstractmethod
    def rows(self, query: Query) -> AsyncIterator[Row]:
        """The rows one after the other; only a few are in memory at a time."""

    @abstractmethod
    async def estimate(self, query: Query) -> int | None:
        """About how many rows there are, if the server tells it soon."""

    async def boundaries(self, query: Query, parts: int, rows: int) -> list[Position]:
        """Positions in order, each of them the last one of a part but for the last part: they divide about so many rows
        into about equal parts. Fewer or none where the server does not tell them soon."""
        return []

    async def horizon(self, query: Query) -> tuple[Position, int] | None:
        """The last position at present, and a number for ``is_settled``. None when there are no rows. Raises
        NotImplementedError where the dialect has no such number."""
        raise NotImplementedError

    async def is_settled(self, number: int) -> bool:
        """Whether every transaction has ended that was running when ``horizon`` gave the number."""
        raise NotImplementedError

    @abstractmethod
    async def prepare_reading(self) -> None:
        """Called once before rows are read: the session cannot write any more."""

    @abstractmethod
    def abort(self) -> None:
        """Closes the connection at once, whatever it is doing."""


class Session(ReadingSession):
    """One that can also write. Its methods raise BatchRefusedError for what is in the data."""

    @abstractmethod
    def quoted(self, name: str) -> str:
        """An identifier in an SQL statement with parameters."""

    @abstractmethod
    async def write(self, table: Table, changes: Sequence[Change], key: tuple[str, ...]) -> None:
        """Makes all changes in order, in one transaction. Rows whose key exists are updated; without a key, rows are
        inserted."""


class Sessions:
    """Up to ``limit`` sessions, each used by one caller at a time and opened when it is needed."""

    def __init__(self, opened: Callable[[], Awaitable[Session]], limit: int) -> None:
        self._opened = opened
        self._room = asyncio.Semaphore(limit)
        self._idle: list[Session] = []

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Session]:
        """A session that failed is not used again, except when only the data was at fault."""
        async with self._room:
            session = self._idle.pop() if self._idle else await self._opened()
            try:
                yield session
            except BatchRefusedError:
                self._idle.append(session)
                raise
            except BaseException:
                session.abort()
                raise
            self._idle.append(session)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().abort()


class Route(NamedTuple):
    """The address to connect to, and what closes the way there."""

    address: str
    port: int
    close: Callable[[], None]


async def opened_in_time(connection: DatabaseConnection, opening: Awaitable[OpenedT]) -> OpenedT:
    """Limits the time, since a driver's own limit does not cover the server's greeting. Raises
    ConnectionFailedError."""
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            return await opening
    except TimeoutError:
        text = f"{connection.host}:{connection.server_port} does not answer within {CONNECT_SECONDS} seconds."
        raise ConnectionFailedError.of("host", Reason.TIMEOUT, text) from None


@asynccontextmanager
async def route_to(connection: DatabaseConnection) -> AsyncIterator[Route]:
    """Yields the way to the server, which stays open unless the body fails. Every address is checked first."""
    tunnel = connection.ssh_tunnel
    if tunnel is None:
        address = (await _allowed_addresses(connection.host, connection.server_port, "host"))[0]
        yield Route(address, connection.server_port, lambda: None)
        return
    with _refused_at("host"):
        outbound.outbound_policy().check_far_host(connection.host)
    address = (await _allowed_addresses(tunnel.host, tunnel.port, "ssh_tunnel"))[0]
    try:
        ssh = await connected(
            address,
            tunnel.port,
            host=tunnel.host,
            user=tunnel.user,
            host_key=tunnel.host_key,
            login=tunnel.private_key,
        )
    except SshError as error:
        raise ConnectionFailedError.of("ssh_tunnel", error.reason, str(error)) from None
    try:
        listener = await ssh.forward_local_port("127.0.0.1", 0, connection.host, connection.server_port)
        yield Route("127.0.0.1", listener.get_port(), ssh.abort)
    except BaseException:
        ssh.abort()
        raise


async def _allowed_addresses(host: str, port: int, field: str) -> list[str]:
    """Raises ConnectionFailedError."""
    try:
        resolved = await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        text = f"The host {host} is not known: check its spelling."
        raise ConnectionFailedError.of(field, Reason.DNS, text) from None
    addresses = [str(address[0]) for *_, address in resolved]
    with _refused_at(field):
        for address in addresses:
            outbound.outbound_policy().check_address(address)
    return addresses


@contextmanager
def _refused_at(field: str) -> Iterator[None]:
    """Blames that field for an address that is forbidden. Raises ConnectionFailedError."""
    try:
        yield
    except outbound.ForbiddenAddressError as error:
        raise ConnectionFailedError.of(field, Reason.FORBIDDEN, str(error), retryable=False) from None


def conditions(query: Query, quoted: Callable[[str], str], decoded: Callable[[Any], Any]) -> tuple[str, list[Any]]:
    """The WHERE clause's conditions, of rows of the alias ``r``, and their parameters; TRUE when there are none."""
    columns = [f"r.{quoted(name)}" for name in query.position]
    terms = [f"{column} IS NOT NULL" for column in columns]
    parameters: list[Any] = []
    for values, operator, last in ((query.after, ">", ">"), (query.until, "<", "<=")):
        if values is not None:
            condition, used = _compared(columns, [decoded(value) for value in values], operator, last)
            terms.append(condition)
            parameters += used
    return " AND ".join(terms) or "TRUE", parameters


def _compared(columns: Sequence[str], values: Sequence[Any], operator: str, last: str) -> tuple[str, list[Any]]:
    """Compares by the first column and, where that is equal, by the next. The condition on the first column stands by
    itself, too, so that an index on it serves."""
    if len(columns) == 1:
        return f"{columns[0]} {last} %s", [values[0]]
    condition, parameters = _compared(columns[1:], values[1:], operator, last)
    first = columns[0]
    text = f"{first} {operator}= %s AND ({first} {operator} %s OR ({first} = %s AND {condition}))"
    return text, [values[0], values[0], values[0], *parameters]


def runs(
    changes: Sequence[Change], key: tuple[str, ...]
) -> Iterator[tuple[bool, tuple[str, ...], list[dict[str, Any]]]]:
    """Consecutive changes that make one statement: of one kind and of the same columns. Of several with the same key,
    which one statement cannot take, the last one counts."""
    start = 0
    while start < len(changes):
        delete, row = changes[start]
        end = start + 1
        while end < len(changes) and changes[end].delete == delete and changes[end].row.keys() == row.keys():
            end += 1
        rows = [change.row for change in changes[start:end]]
        if key:
            rows = list({tuple(str(row[name]) for name in key): row for row in rows}.values())
        yield delete, tuple(row), rows
        start = end


def without_zone(value: Any) -> Any:
    """A timestamp with an offset as UTC without one, as columns without a time zone keep it; else the value itself."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            moment = datetime.fromisoformat(value)
            if moment.tzinfo is not None:
                return moment.astimezone(UTC).replace(tzinfo=None).isoformat(" ")
    return value
