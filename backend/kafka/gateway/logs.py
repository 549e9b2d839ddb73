"""Partitions as logs: their ends, their batches, and waiting for new records."""

import asyncio
import contextlib
import time
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from backend.kafka.gateway.batch_cache import BatchCache
from backend.kafka.gateway.batches import Batch, Compression, batches
from backend.kafka.gateway.encoded_files import EncodedFiles
from backend.kafka.gateway.ports import Collection, Ends, Record, Storage, StorageError

_POLL_SECONDS = 0.05
"""How often the ends of a collection are read while a consumer waits for them to grow."""
_READ_BYTES = 2 * 1024 * 1024
_BATCH_BYTES = 128 * 1024
_NOTHING = Ends(0, 0, 0)


@dataclass
class _Tail:
    """The last known ends of one collection, and who waits for them to grow."""

    ends: Sequence[Ends] = ()
    """Of the partitions that have been written to."""
    read_at: float = 0.0
    reading: asyncio.Task[Sequence[Ends]] | None = None
    waiters: set[asyncio.Event] = field(default_factory=set)
    polling: asyncio.Task[None] | None = None


class Logs:
    """The partitions of all collections. Concurrent readers of the same range share one read and one encoding."""

    def __init__(self, storage: Storage, *, cache_bytes: int, cache_disk_bytes: int) -> None:
        self._storage = storage
        self._cache = BatchCache(cache_bytes)
        self._files = EncodedFiles(cache_disk_bytes)
        self._tails: dict[UUID, _Tail] = {}
        self._reads: dict[tuple[Collection, int, int, Compression, int], asyncio.Task[list[Batch]]] = {}

    async def ends(self, collection: Collection, *, max_age: float = 0.0) -> Sequence[Ends]:
        """The ends by partition, read at most ``max_age`` seconds ago. Raises StorageError."""
        tail = self._tails.setdefault(collection.id, _Tail())
        if max_age and time.monotonic() - tail.read_at < max_age:
            return _of_all(collection, tail.ends)
        if tail.reading is not None and not max_age:
            # It was started before this call and may miss what the caller knows of.
            with contextlib.suppress(StorageError):
                await asyncio.shield(tail.reading)
        if tail.reading is None:
            tail.reading = asyncio.create_task(self._read_ends(collection, tail))
        return _of_all(collection, await asyncio.shield(tail.reading))

    async def _read_ends(self, collection: Collection, tail: _Tail) -> Sequence[Ends]:
        try:
            ends = await self._storage.ends(collection)
            if ends != tail.ends:
                tail.ends = ends
                for waiter in tail.waiters:
                    waiter.set()
            tail.read_at = time.monotonic()
            return ends
        finally:
            tail.reading = None

    def known(self, collection: Collection) -> Sequence[Ends]:
        """The last known ends; empty if they have never been read."""
        tail = self._tails.setdefault(collection.id, _Tail())
        return _of_all(collection, tail.ends) if tail.read_at else ()

    @contextlib.contextmanager
    def watching(self, collections: Sequence[Collection], changed: asyncio.Event) -> Iterator[None]:
        """Sets the event whenever the ends of one of the collections change."""
        tails = [self._tails.setdefault(collection.id, _Tail()) for collection in collections]
        for collection, tail in zip(collections, tails, strict=True):
            tail.waiters.add(changed)
            if tail.polling is None:
                tail.polling = asyncio.create_task(self._poll(collection, tail))
        try:
            yield
        finally:
            for tail in tails:
                tail.waiters.discard(changed)

    async def _poll(self, collection: Collection, tail: _Tail) -> None:
        try:
            while tail.waiters:
                with contextlib.suppress(StorageError):
                    await self.ends(collection, max_age=_POLL_SECONDS)
                await asyncio.sleep(_POLL_SECONDS)
        finally:
            tail.polling = None

    async def read(
        self,
        collection: Collection,
        partition: int,
        offset: int,
        *,
        ends: Ends,
        compression: Compression,
        max_bytes: int,
    ) -> list[Batch]:
        """Batches from the one with the offset on: at least one, unless it is the end, and no more than ``max_bytes``
        otherwise. Raises StorageError."""
        log = (collection.id, collection.form, partition, ends.epoch, compression)
        batches_read: list[Batch] = []
        size = 0
        while offset < ends.end:
            batch = self._cache.at(log, offset)
            if batch is None:
                batch = await self._load(collection, partition, offset, epoch=ends.epoch, compression=compression)
                if batch is None:
                    break
            size += len(batch.data)
            if batches_read and size > max_bytes:
                break
            batches_read.append(batch)
            offset = batch.last + 1
        if offset < ends.end and self._cache.at(log, offset) is None:
            # Most consumers read on: what they ask for next is made ready while they work on this.
            self._loading(collection, partition, offset, epoch=ends.epoch, compression=compression)
        return batches_read

    async def _load(
        self, collection: Collection, partition: int, offset: int, *, epoch: int, compression: Compression
    ) -> Batch | None:
        loading = self._loading(collection, partition, offset, epoch=epoch, compression=compression)
        loaded = await asyncio.shield(loading)
        return loaded[0] if loaded else None

    def _loading(
        self, collection: Collection, partition: int, offset: int, *, epoch: int, compression: Compression
    ) -> asyncio.Task[list[Batch]]:
        key = (collection, partition, epoch, compression, offset)
        if key not in self._reads:
            task = asyncio.create_task(self._read(collection, partition, offset, epoch=epoch, compression=compression))
            self._reads[key] = task
            task.add_done_callback(lambda done: self._loaded(key, done))
        return self._reads[key]

    def _loaded(self, key: tuple[Collection, int, int, Compression, int], done: asyncio.Task[list[Batch]]) -> None:
        del self._reads[key]
        if not done.cancelled():
            done.exception()  # of what is read ahead nobody may ask for it; whoever needs it reads again

    async def _read(
        self, collection: Collection, partition: int, offset: int, *, epoch: int, compression: Compression
    ) -> list[Batch]:
        log = (collection.id, collection.form, partition, epoch, compression)
        encoded: list[Batch] = []
        if self._files.has(log, offset):
            encoded = await asyncio.to_thread(self._files.get, log, offset)
        if not encoded:
            records = await self._storage.read(collection, partition, offset, _READ_BYTES)
            encoded = await asyncio.to_thread(self._encoded, log, records, epoch, compression)
        for batch in encoded:
            self._cache.put(log, batch)
        return encoded

    def _encoded(self, log: Hashable, records: Sequence[Record], epoch: int, compression: Compression) -> list[Batch]:
        encoded = list(batches(records, epoch, compression, _BATCH_BYTES))
        # The few that have just been appended are soon read with those after them, in larger batches.
        if sum(len(record.value or b"") for record in records) >= _READ_BYTES // 2:
            self._files.put(log, encoded)
        return encoded


def _of_all(collection: Collection, written: Sequence[Ends]) -> Sequence[Ends]:
    """A partition is empty until it is written to. Here and not in the storage: what is known of a collection may be
    older than one of its partitions."""
    return [*written, *[_NOTHING] * (collection.partitions - len(written))]
