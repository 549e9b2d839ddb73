"""The collections' Delta tables as the gateway's storage."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID

from backend.collections.errors import CollectionError, CollectionMissingError
from backend.collections.location import Location
from backend.collections.reader import CollectionReader
from backend.collections.store import unreachable
from backend.collections.table import Snapshot
from backend.kafka.gateway.ports import Collection, Ends, Record, StorageError
from backend.kafka.gateway.values import Values

T = TypeVar("T")


@dataclass(frozen=True)
class Placed:
    """A collection, where its table is, and the form of its values. ``written`` says that it is known to have one."""

    collection: Collection
    location: Location
    values: Values = field(default_factory=Values)
    written: bool = False


class DeltaStorage:
    """``placed`` lists all collections; it raises StorageError. Tables are read in threads.

    A collection has its table, and each of its partitions, from the first document on: before that it is empty.
    """

    def __init__(self, placed: Callable[[], Awaitable[Sequence[Placed]]]) -> None:
        self._placed = placed
        self._tables: dict[UUID, Placed] = {}
        self._readers: dict[UUID, CollectionReader] = {}

    async def collections(self) -> Sequence[Collection]:
        self._tables = {placed.collection.id: placed for placed in await self._placed()}
        for gone in self._readers.keys() - self._tables.keys():
            del self._readers[gone]
        return [placed.collection for placed in self._tables.values()]

    async def ends(self, collection: Collection) -> Sequence[Ends]:
        unwritten: Sequence[Ends] = ()
        return await self._in_thread(collection, _refreshed_ends, unwritten)

    async def read(self, collection: Collection, partition: int, offset: int, max_bytes: int) -> Sequence[Record]:
        unwritten: tuple[Sequence[Record], bool] = ((), True)

        def read(reader: CollectionReader) -> tuple[Sequence[Record], bool]:
            return self._of(collection).values.records(reader.read_groups(partition, offset, max_bytes))

        records, all_fit = await self._in_thread(collection, read, unwritten)
        if not all_fit:  # they may be newer than what is known here of their schema
            await self.collections()
            records, _ = await self._in_thread(collection, read, unwritten)
        return records

    async def at_time(self, collection: Collection, partition: int, timestamp: int) -> tuple[int, int] | None:
        def at_time(reader: CollectionReader) -> tuple[int, int] | None:
            return reader.offset_for_timestamp(partition, timestamp) if partition < reader.partitions else None

        return await self._in_thread(collection, at_time, None)

    async def epoch_end(self, collection: Collection, partition: int, epoch: int) -> int:
        def epoch_end(reader: CollectionReader) -> int:
            return reader.epoch_end_offset(partition, epoch) if partition < reader.partitions else 0

        return await self._in_thread(collection, epoch_end, 0)

    def _of(self, collection: Collection) -> Placed:
        placed = self._tables.get(collection.id)
        if placed is None:
            raise StorageError(f"The collection {collection.name} was deleted.")
        return placed

    async def _in_thread(self, collection: Collection, work: Callable[[CollectionReader], T], unwritten: T) -> T:
        """``unwritten`` while the collection has no table. Raises StorageError, also when a table has vanished."""
        placed = self._of(collection)

        def call() -> T:
            reader = self._readers.get(collection.id)
            if reader is None:
                try:
                    reader = self._readers[collection.id] = CollectionReader(placed.location)
                except CollectionMissingError:
                    if placed.written:
                        raise unreachable(placed.location) from None
                    return unwritten
            return work(reader)

        try:
            return await asyncio.to_thread(call)
        except CollectionError as error:
            raise StorageError(str(error)) from error


def _refreshed_ends(reader: CollectionReader) -> Sequence[Ends]:
    reader.refresh()
    return ends_of(reader.snapshot)


def ends_of(snapshot: Snapshot) -> Sequence[Ends]:
    return [Ends(snapshot.start(number), end, snapshot.epoch) for number, end in enumerate(snapshot.ends)]
