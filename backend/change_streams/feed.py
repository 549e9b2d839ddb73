"""Takes the documents of an existing collection over into the log of a change stream."""

import asyncio
from collections.abc import Callable, Iterator

from backend.change_streams.records import RecordsByKey
from backend.collections.documents import Document
from backend.collections.reader import CollectionReader
from backend.collections.table import Table
from backend.collections.writer import CollectionWriter, NewDocument
from backend.domain.collected import partition_of

_POLL_SECONDS = 0.2
_READ_BYTES = 4 * 1024 * 1024
_COLLECTION = "collection"
"""The header of a document that was taken over: the id of its collection."""


def source_name(collection: str, partition: int) -> str:
    """The source by which the log knows how far it has a partition of a collection."""
    return f"{collection}/{partition}"


class Feed:
    """One collection as a source of a change stream, each document exactly once.

    The stream keeps what it has taken over in its own log, so that neither the collection's retention nor its reset
    takes away what it needs. A reset deletes the records that came from the collection.
    """

    def __init__(
        self, collection: str, source: CollectionReader, log: Table, check: Callable[[Document], None], *, deltas: bool
    ) -> None:
        """``collection`` is its id, and ``log`` for this feed alone. ``check`` raises ValueError for a document that
        does not fit the stream. ``deltas`` says that documents are differences, which a reset cannot take back."""
        self._collection = collection
        self._source = source
        self._log = log
        self._check = check
        self._deltas = deltas
        self._epoch = 0
        """Up to which leader epoch resets were taken over."""

    async def run(self, on_success: Callable[[], None] = lambda: None) -> None:
        """Takes over until it is cancelled; calls ``on_success`` each time that it has everything that it can have.
        Raises CollectionError, and ValueError for what cannot be taken over."""
        while True:
            if not await asyncio.to_thread(self.take):
                on_success()
                await asyncio.sleep(_POLL_SECONDS)

    def take(self) -> bool:
        """Takes over some documents of each partition; whether there were any. Blocks. Raises as ``run``."""
        self._source.refresh()
        epoch = self._source.leader_epoch
        if epoch > self._epoch:
            self._reset(epoch)
            self._epoch = epoch
        taken = [self._take(partition, epoch) for partition in range(self._source.partitions)]
        return any(taken)

    def _take(self, partition: int, epoch: int) -> bool:
        writer = CollectionWriter(self._log, source_name(self._collection, partition))
        position = writer.position()
        offset = self._source.start_offset(partition) if position is None else self._begin(partition, position)
        documents = self._source.read(partition, offset, _READ_BYTES)
        if not documents or self._source.leader_epoch != epoch:
            return bool(documents)  # after a reset of this very moment its records have to be deleted first
        fitting: list[NewDocument] = []
        try:
            for document in documents:
                fitting.append(self._taken(partition, document))
        except ValueError:
            if not fitting:
                raise  # what comes before it has been taken over
        writer.append(fitting, fitting[-1].position + 1)
        return True

    def _begin(self, partition: int, position: int) -> int:
        """Where to go on. Raises ValueError when documents were removed before they were taken over."""
        start = self._source.start_offset(partition)
        if max(position, self._reset_at(partition)) < start:
            raise ValueError(
                f"The documents from {position} to {start - 1} of partition {partition} were removed from the "
                "collection before the change stream had them: reset the collection, and fill it again."
            )
        return max(position, start)

    def _reset_at(self, partition: int) -> int:
        """The offset at which the present leader epoch began."""
        return self._source.epoch_end_offset(partition, self._source.leader_epoch - 1)

    def _taken(self, partition: int, document: Document) -> NewDocument:
        try:
            self._check(document)
        except ValueError as error:
            place = f"Document {document.offset} of partition {partition}"
            raise ValueError(f"{place} of the collection does not fit the change stream: {error}") from None
        return self._new(document.offset, document.key or b"", document.value, deleted=document.deleted)

    def _reset(self, epoch: int) -> None:
        """Deletes, in one commit, the records that came from the collection before this epoch."""
        writer = CollectionWriter(self._log, f"{self._collection}/resets")
        if (writer.position() or 0) > epoch or not self._has_former():
            return
        if self._deltas:
            raise ValueError(
                "The collection was reset, and its differences cannot be taken back: make a new change stream."
            )
        writer.append([self._new(epoch, key, b"", deleted=True) for key in self._keys()], epoch + 1)

    def _has_former(self) -> bool:
        """Whether documents from before the last reset were taken over."""
        for partition in range(self._source.partitions):
            position = CollectionWriter(self._log, source_name(self._collection, partition)).position()
            if position is not None and position <= self._reset_at(partition):
                return True
        return False

    def _keys(self) -> Iterator[bytes]:
        """The keys whose last document in the log came from the collection and is no deletion."""
        log = CollectionReader(self._log.location)
        header = (_COLLECTION, self._collection.encode())
        records = RecordsByKey()
        for partition in range(log.partitions):
            records.update(
                (document.key or b"", b"" if header in document.headers and not document.deleted else None)
                for document in log.documents(partition, log.start_offset(partition), log.end_offset(partition))
            )
        return records.keys()

    def _new(self, position: int, key: bytes, value: bytes, *, deleted: bool) -> NewDocument:
        headers = ((_COLLECTION, self._collection.encode()),)
        return NewDocument(position, partition_of(key, self._log.partitions), key, value, headers, deleted)
