"""PostgreSQL's streaming replication of logical changes, over libpq: psycopg has no interface for it.

PostgreSQL's manual describes it in "Frontend/Backend Protocol", "Streaming Replication Protocol".
"""

import asyncio
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple

import psycopg
from psycopg import AsyncConnection, generators, pq

from backend.connectors.parts.database import DatabaseConnection, configuration_error
from backend.connectors.parts.pgoutput import ProtocolError
from backend.connectors.parts.postgresql import connected, failure, primary, translated
from backend.domain.capabilities import DeliveryError
from backend.domain.reasons import Reason

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC).timestamp()
_IN_USE = "55006"
_EXPORT_SECONDS = 300.0
_IN_USE_SECONDS = 10.0
"""How long another reader, which may have just been killed, is waited for."""


class Wal(NamedTuple):
    """A message of the output plugin."""

    data: memoryview


class KeepAlive(NamedTuple):
    """How far the server has read its log; everything before it has been sent. ``reply`` asks for an answer."""

    end: int
    reply: bool


def lsn_text(lsn: int) -> str:
    """As PostgreSQL writes a position in its log."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_number(text: str) -> int:
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)


class Replication:
    """A connection to PostgreSQL's WAL sender. Its methods raise DeliveryError."""

    def __init__(self, database: AsyncConnection[Any], close_route: Callable[[], None]) -> None:
        self._database = database
        self._close_route = close_route

    @classmethod
    async def open(cls, connection: DatabaseConnection) -> "Replication":
        return cls(*await connected(connection, replication="database"))

    async def system(self) -> str:
        """The identifier of the database cluster."""
        with translated():
            return str((await self._row("IDENTIFY_SYSTEM"))[0])

    async def export_snapshot(self, slot: str) -> tuple[int, str]:
        """A position in the log and a snapshot of exactly what was committed before it. The snapshot can be imported
        for as long as this connection is open and unused; the slot is temporary."""
        try:
            async with asyncio.timeout(_EXPORT_SECONDS):
                row = await self._row(f'CREATE_REPLICATION_SLOT "{slot}" TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT')
        except TimeoutError:
            text = "PostgreSQL takes a snapshot once all transactions that are running now have ended."
            raise DeliveryError(Reason.TIMEOUT, text, retryable=True) from None
        except psycopg.Error as error:
            raise slot_failure(error, slot) from None
        return lsn_number(row[1]), str(row[2])

    async def start(self, slot: str, publication: str) -> None:
        """Begins to stream from the slot's confirmed position."""
        name = publication.replace('"', '""').replace("'", "''")
        command = f"START_REPLICATION SLOT \"{slot}\" LOGICAL 0/0 (proto_version '1', publication_names '\"{name}\"')"
        until = time.monotonic() + _IN_USE_SECONDS
        while True:
            try:
                await self._database.wait(self._started(command.encode()))
                return
            except psycopg.Error as error:
                if error.sqlstate != _IN_USE or time.monotonic() > until:
                    raise slot_failure(error, slot) from None
            await asyncio.sleep(0.2)

    async def receive(self) -> Wal | KeepAlive | None:
        """The next message that has arrived, or None when there is none yet."""
        with translated():
            connection = self._database.pgconn
            size, data = connection.get_copy_data(1)
            if size == 0:
                connection.consume_input()
                size, data = connection.get_copy_data(1)
            if size > 0:
                return _decoded(data)
            if size < 0:
                await self._ended()
        return None

    async def wait(self, seconds: float) -> None:
        """Returns when something has arrived, at the latest after that time."""
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()
        socket = self._database.pgconn.socket
        loop.add_reader(socket, arrived.set)
        try:
            async with asyncio.timeout(seconds):
                await arrived.wait()
        except TimeoutError:
            pass
        finally:
            loop.remove_reader(socket)

    def confirm(self, lsn: int, *, reply: bool = False) -> None:
        """Everything before that position is stored: the server need not keep it. Also keeps the connection alive; with
        ``reply`` the server answers."""
        now = int((time.time() - _EPOCH) * 1_000_000)
        with translated():
            self._database.pgconn.put_copy_data(struct.pack("!cQQQqB", b"r", lsn, lsn, lsn, now, reply))
            self._database.pgconn.flush()

    def abort(self) -> None:
        self._database.pgconn.finish()
        self._close_route()

    async def _row(self, command: str) -> Any:
        row = await (await self._database.execute(command.encode())).fetchone()
        assert row is not None
        return row

    def _started(self, command: bytes) -> Any:
        connection = self._database.pgconn
        connection.send_query(command)
        (result, *_) = yield from generators.execute(connection)
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise psycopg.errors.error_from_result(result)

    async def _ended(self) -> None:
        """Raises why the server ended the stream."""
        results = await self._database.wait(generators.fetch_many(self._database.pgconn))
        for result in results:
            if result.error_message:
                raise psycopg.errors.error_from_result(result)
        raise psycopg.OperationalError("the server has ended the stream")


@contextmanager
def explained(slot: str) -> Iterator[None]:
    """PostgreSQL's errors about a slot as DeliveryErrors."""
    try:
        yield
    except psycopg.Error as error:
        raise slot_failure(error, slot) from None


def slot_failure(error: psycopg.Error, slot: str) -> DeliveryError:
    """What an error means for a slot."""
    text = primary(error)
    match error.sqlstate:
        case "55006":
            return DeliveryError(
                "slot_in_use", f"Another reader uses the replication slot {slot}: {text}.", retryable=True
            )
        case "55000" if "no longer" in text or "invalidated" in text:
            return configuration_error(
                f"The replication slot {slot} is lost, since PostgreSQL has removed parts of its log that were not yet "
                "read (max_slot_wal_keep_size): publish the pipeline again to make a new one."
            )
        case "42704":
            return configuration_error(f"PostgreSQL: {text}. Publish the pipeline again to make it anew.")
        case "42501":
            return configuration_error(f"PostgreSQL does not let the user replicate: {text}.")
    return failure(error)


def _decoded(data: memoryview) -> Wal | KeepAlive:
    kind = bytes(data[:1])
    if kind == b"w":
        return Wal(data[25:])
    if kind == b"k":
        end, _, reply = struct.unpack("!QqB", data[1:18])
        return KeepAlive(end, bool(reply))
    raise ProtocolError(f"{kind!r} is no replication message.")
