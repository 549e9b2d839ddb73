import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from backend.connectors.parts.database import configuration_error, opened_in_time
from backend.connectors.parts.pgoutput import (
    Begin,
    Commit,
    Delete,
    Insert,
    Message,
    Relation,
    Truncate,
    Update,
    decode,
)
from backend.connectors.parts.postgresql import translated
from backend.connectors.parts.replication import KeepAlive, Replication, lsn_number, lsn_text
from backend.connectors.postgres_cdc.catalog import Catalog
from backend.connectors.postgres_cdc.connection import PostgresConnection
from backend.connectors.postgres_cdc.rows import Change, TableShape
from backend.connectors.postgres_cdc.snapshot import Place, Snapshot
from backend.domain.capabilities import Batch, DeliveryError, InputRecord
from backend.domain.reasons import Reason

_BATCH_RECORDS = 500
_BATCH_BYTES = 1024 * 1024
_ANSWER_SECONDS = 30.0
_CONFIRM_SECONDS = 10.0
_SILENCE_SECONDS = 60.0
"""A server that has answered nothing for so long is lost: it is asked for an answer more often."""


class ChangeReader:
    """Reads the rows of the tables once, if that was asked for, and every change after them."""

    def __init__(
        self, connection: PostgresConnection, registered: Mapping[str, Any], kept: Any, replication: Replication
    ) -> None:
        self._connection = connection
        self._registered = registered
        self._kept = kept
        self._replication = replication
        self._catalog = Catalog(connection)
        self._position = _Position()

    @classmethod
    async def open(cls, connection: PostgresConnection, registered: Mapping[str, Any], kept: Any) -> "ChangeReader":
        """``kept`` is the breakpoint of the last batch that was acknowledged, which tells how far a snapshot is."""
        if not registered:
            raise configuration_error(
                "The replication slot of this input was not made yet: publish the pipeline again."
            )
        return cls(connection, registered, kept, await opened_in_time(connection, Replication.open(connection)))

    def close(self) -> None:
        self._replication.abort()

    async def stream(self) -> AsyncIterator[Batch]:
        replication = self._replication
        async with _answer():
            system = await replication.system()
        async for batch in self._snapshot(system):
            yield batch
        changes = _Changes(self._catalog, system)
        async with _answer():
            await replication.start(self._registered["slot"], self._registered["publication"])
        confirming = asyncio.create_task(self._confirm_forever(replication))
        try:
            async for batch in self._batches(replication, changes):
                yield batch
        finally:
            confirming.cancel()

    def acknowledge(self, position: Any) -> None:
        number, lsn, *_ = position
        self._position.acknowledge(number, lsn_number(lsn))
        if self._position.streaming:
            self._replication.confirm(self._position.acknowledged)

    async def _snapshot(self, system: str) -> AsyncIterator[Batch]:
        """All rows, if they have not been read yet: as long as the marker is there."""
        registered, marker = self._registered, self._registered["snapshot"]
        if not await self._slots_exist(registered["slot"], marker):
            return
        gathered = _Gathered()
        place = Place.of((self._kept or [])[2:])
        snapshot = Snapshot(self._connection, self._catalog, system)
        async with contextlib.aclosing(
            snapshot.records(registered["slot"], registered["begin"], registered["publication"], place)
        ) as records:
            async for record, place in records:
                if gathered.add(record):
                    yield Batch(gathered.take(), [*self._position.batch(), *place])
        if gathered.records:
            assert place is not None
            yield Batch(gathered.take(), [*self._position.batch(), *place])
        if self._position.all_acknowledged:
            await self._drop(marker)

    async def _slots_exist(self, slot: str, marker: str) -> bool:
        """Whether the marker is there. Raises DeliveryError when the slot is not."""
        statement = "SELECT slot_name::text FROM pg_replication_slots WHERE slot_name = ANY(%s)"
        async with _answer(), self._catalog.session() as session:
            with translated():
                rows = await session.query(statement, [[slot, marker]])
        if (slot,) not in rows:
            raise configuration_error(f"The replication slot {slot} does not exist: publish the pipeline again.")
        return (marker,) in rows

    async def _drop(self, marker: str) -> None:
        statement = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s"
        async with _answer(), self._catalog.session() as session:
            with translated():
                await session.query(statement, [marker])

    async def _batches(self, replication: Replication, changes: "_Changes") -> AsyncIterator[Batch]:
        position, gathered = self._position, _Gathered()
        position.streaming = True
        last_received = time.monotonic()
        while True:
            received = await replication.receive()
            full = False
            if received is None:
                if not gathered.records:
                    if time.monotonic() - last_received > _SILENCE_SECONDS:
                        raise DeliveryError(Reason.TIMEOUT, "PostgreSQL does not answer any more.", retryable=True)
                    await replication.wait(1.0)
                    continue
            elif isinstance(received, KeepAlive):
                last_received = time.monotonic()
                before = position.acknowledged
                if not changes.in_transaction and not gathered.records:
                    position.reach(received.end)
                if received.reply or position.acknowledged > before:
                    replication.confirm(position.acknowledged)
            else:
                last_received = time.monotonic()
                message = decode(received.data)
                async for record in changes.records(message):
                    full = gathered.add(record)
                if isinstance(message, Commit):
                    position.reached = message.end
            if gathered.records and (full or received is None):
                yield Batch(gathered.take(), position.batch())
                last_received = time.monotonic()

    async def _confirm_forever(self, replication: Replication) -> None:
        """Keeps the connection alive while a batch is stored, and has the server answer."""
        while True:
            await asyncio.sleep(_CONFIRM_SECONDS)
            with contextlib.suppress(DeliveryError):  # whoever reads next meets the error
                replication.confirm(self._position.acknowledged, reply=True)


class _Position:
    """How far the log has been read, and how much of that is stored."""

    def __init__(self) -> None:
        self.reached = 0
        """Where the last transaction ended that has been read."""
        self.acknowledged = 0
        self.streaming = False
        self._batches = 0
        self._acknowledged_batches = 0

    def batch(self) -> list[Any]:
        """The breakpoint of the next batch. Of a transaction that is read in several batches, only the last one
        confirms it."""
        self._batches += 1
        return [self._batches, lsn_text(self.reached)]

    @property
    def all_acknowledged(self) -> bool:
        return self._acknowledged_batches == self._batches

    def acknowledge(self, number: int, lsn: int) -> None:
        self._acknowledged_batches = number
        self.acknowledged = max(self.acknowledged, lsn)

    def reach(self, lsn: int) -> None:
        """Nothing before that position concerns this input, or all of it has been read."""
        self.reached = max(self.reached, lsn)
        if self.all_acknowledged:
            self.acknowledged = self.reached


class _Gathered:
    """Records of the next batch."""

    def __init__(self) -> None:
        self.records: list[InputRecord] = []
        self._size = 0

    def add(self, record: InputRecord) -> bool:
        """Whether there are enough."""
        self.records.append(record)
        self._size += len(record.body)
        return len(self.records) >= _BATCH_RECORDS or self._size >= _BATCH_BYTES

    def take(self) -> list[InputRecord]:
        records, self.records, self._size = self.records, [], 0
        return records


class _Changes:
    """Makes records of the output plugin's messages. A record's identity is its place in its transaction."""

    def __init__(self, catalog: Catalog, system: str) -> None:
        self._catalog = catalog
        self._system = system
        self._shapes: dict[int, TableShape] = {}
        self._transaction: Begin | None = None
        self._number = 0

    @property
    def in_transaction(self) -> bool:
        return self._transaction is not None

    async def records(self, message: Message | None) -> AsyncIterator[InputRecord]:
        match message:
            case Begin():
                self._transaction, self._number = message, 0
            case Commit():
                self._transaction = None
            case Relation():
                async with _answer():
                    with translated():
                        self._shapes[message.oid] = await self._catalog.shape(message)
            case Insert() | Update() | Delete():
                shape = self._shapes[message.relation]
                for change in shape.changes(message):
                    yield self._record(shape, change)
            case Truncate():
                for relation in message.relations:
                    yield self._record(self._shapes[relation], Change("truncate", None, None, None))

    def _record(self, shape: TableShape, change: Change) -> InputRecord:
        transaction = self._transaction
        assert transaction is not None
        self._number += 1
        lsn = lsn_text(transaction.lsn)
        body = shape.body(change, lsn=lsn, ts=transaction.at.isoformat(), xid=transaction.xid)
        identity = f"{self._system}/{lsn}/{transaction.xid}/{self._number}"
        return InputRecord(body, key=change.key, identity=identity, source=f"{shape.schema}.{shape.table}")


@contextlib.asynccontextmanager
async def _answer() -> AsyncIterator[None]:
    """Limits the time of a question to the server."""
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            yield
    except TimeoutError:
        raise DeliveryError(Reason.TIMEOUT, "PostgreSQL does not answer.", retryable=True) from None
