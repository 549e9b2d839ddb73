"""Reads one collection."""

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

from backend.collections.documents import Document, decode
from backend.collections.errors import OffsetOutOfRangeError, SegmentGoneError
from backend.collections.location import Location
from backend.collections.table import Segment, Snapshot, Table, as_collection_errors, epoch_id

_READ_BYTES = 1024 * 1024
_SEARCHED_BYTES = 64 * 1024 * 1024
"""After so many bytes of files a search stops, and can be gone on with."""


class CollectionReader:
    """One collection, as it was at the last ``refresh``.

    Blocks; may be used by several threads. Watermarks never fall, however the collection is merged, emptied or reset.
    Methods raise CollectionUnavailableError when the files cannot be read, CollectionMissingError when the collection
    was deleted; ``partition`` is one of ``range(partitions)``.
    """

    def __init__(self, location: Location) -> None:
        self._lock = threading.Lock()
        self._table = Table(location)
        self._snapshot = self._table.snapshot()
        self._epoch_starts: dict[tuple[int, int], int] = {}

    def refresh(self) -> bool:
        """Goes on to the newest version. Whether anything has changed."""
        with self._lock:
            if not self._table.refresh():
                return False
            self._snapshot = self._table.snapshot()
            return True

    @property
    def snapshot(self) -> Snapshot:
        """What the collection held at the last ``refresh``; it never changes and may be passed to other threads."""
        return self._snapshot

    @property
    def partitions(self) -> int:
        """How many partitions there are. It never changes."""
        return self._snapshot.partitions

    @property
    def leader_epoch(self) -> int:
        """Grows by one at each reset, from 0."""
        return self._snapshot.epoch

    def start_offset(self, partition: int) -> int:
        """The offset of the first document that is kept; the end offset when there is none."""
        return self._snapshot.start(partition)

    def end_offset(self, partition: int) -> int:
        """The offset that the next document will have."""
        return self._snapshot.ends[partition]

    def epoch_end_offset(self, partition: int, epoch: int) -> int:
        """The offset at which the epoch ended: where the next one began, or the end offset for the present one and
        any later."""
        if epoch >= self.leader_epoch:
            return self.end_offset(partition)
        following = (max(epoch, -1) + 1, partition)
        with self._lock:
            if following not in self._epoch_starts:
                self._epoch_starts[following] = self._table.transaction(epoch_id(*following)) or 0
            return self._epoch_starts[following]

    def transaction(self, app_id: str) -> int | None:
        """The version of an application transaction, None when there was none."""
        with self._lock:
            return self._table.transaction(app_id)

    def segments(self, partition: int) -> tuple[Segment, ...]:
        """The files of a partition, in the order of their offsets; their paths may be keys of caches."""
        return self._snapshot.segments[partition]

    def offset_for_timestamp(self, partition: int, timestamp: int) -> tuple[int, int] | None:
        """The offset and the time of the first document that is not older than ``timestamp``, in milliseconds since
        1970. None when all are."""
        # Times never fall, so neither do those of the files.
        for segment in self.segments(partition):
            if segment.newest >= timestamp:
                return self._first_since(segment, timestamp)
        return None

    def _first_since(self, segment: Segment, timestamp: int) -> tuple[int, int]:
        if segment.oldest >= timestamp:
            return segment.first, segment.oldest
        return next(
            (document.offset, document.timestamp)
            for document in chain.from_iterable(self._groups_of(segment, segment.first))
            if document.timestamp >= timestamp
        )

    def read(self, partition: int, offset: int, max_bytes: int) -> list[Document]:
        """Documents in the order of their offsets, from ``offset`` on: none at the end offset, otherwise at least one
        and then as many as ``max_bytes`` allow. Raises OffsetOutOfRangeError."""

        def read() -> list[Document]:
            documents: list[Document] = []
            room = max_bytes
            for document in chain.from_iterable(self._groups(partition, offset)):
                room -= document.size
                if room < 0 and documents:
                    break
                documents.append(document)
            return documents

        return self._again_if_gone(read)

    def read_groups(self, partition: int, offset: int, min_bytes: int) -> list[Document]:
        """The same in whole groups of rows, of about a megabyte each, until they have ``min_bytes``: the quickest way
        to read on and on, since no group is decoded twice."""

        def read() -> list[Document]:
            documents: list[Document] = []
            size = 0
            for group in self._groups(partition, offset):
                documents += group
                size += sum(len(document.value) for document in group)
                if size >= min_bytes:
                    break
            return documents

        return self._again_if_gone(read)

    def documents(self, partition: int, begin: int, end: int) -> Iterator[Document]:
        """Those from the offset ``begin`` to before ``end``, some at a time. Raises OffsetOutOfRangeError."""
        while begin < end:
            documents = self.read(partition, begin, _READ_BYTES)
            yield from (document for document in documents if document.offset < end)
            begin = documents[-1].offset + 1 if documents else end

    def _again_if_gone(self, read: Callable[[], list[Document]]) -> list[Document]:
        try:
            return read()
        except SegmentGoneError:  # it was merged with others
            self.refresh()
            return read()

    def _groups(self, partition: int, offset: int) -> Iterator[list[Document]]:
        """Those of a partition from the offset on, a group of rows at a time. Raises OffsetOutOfRangeError."""
        snapshot = self._snapshot
        start, end = snapshot.start(partition), snapshot.ends[partition]
        if not start <= offset <= end:
            text = f"Partition {partition} has the offsets from {start} to {end}; {offset} is outside of them."
            raise OffsetOutOfRangeError(text)
        segments = snapshot.segments[partition]
        first = max(0, bisect_right(segments, offset, key=lambda segment: segment.first) - 1)
        for segment in segments[first:]:
            yield from self._groups_of(segment, offset)

    def find(self, partition: int, key: bytes, before: int, limit: int) -> tuple[list[Document], int]:
        """The newest documents with the key whose offsets are lower than ``before``, newest first. Stops at ``limit``
        documents, or when enough was read; also the offset before which nothing was looked at, at the end 0."""
        import pyarrow as pa
        import pyarrow.compute as pc

        documents: list[Document] = []
        read = 0
        for segment in reversed(self.segments(partition)):
            if segment.first >= before:
                continue
            if read >= _SEARCHED_BYTES:
                return documents, segment.last + 1
            read += segment.bytes
            table = self._rows(segment)
            rows = pc.and_(pc.equal(table.column("key"), pa.scalar(key)), pc.less(table.column("offset"), before))
            for document in reversed(decode(table.filter(rows))):
                documents.append(document)
                if len(documents) == limit:
                    return documents, document.offset
        return documents, 0

    def _rows(self, segment: Segment) -> Any:
        """Of a whole file, as an Arrow table. Raises SegmentGoneError."""
        import pyarrow.parquet as pq

        with (
            as_collection_errors(self._table.location),
            self._as_segment_gone(segment),
            pq.ParquetFile(segment.path, filesystem=self._table.files) as file,
        ):
            return file.read()

    def _groups_of(self, segment: Segment, offset: int) -> Iterator[list[Document]]:
        """The same of one file. Raises SegmentGoneError."""
        import pyarrow.parquet as pq

        with (
            as_collection_errors(self._table.location),
            self._as_segment_gone(segment),
            pq.ParquetFile(segment.path, filesystem=self._table.files) as file,
        ):
            for number in range(file.num_row_groups):
                if file.metadata.row_group(number).column(0).statistics.max < offset:
                    continue
                documents = decode(file.read_row_group(number, use_threads=False))
                yield documents[bisect_left(documents, offset, key=lambda document: document.offset) :]

    @contextmanager
    def _as_segment_gone(self, segment: Segment) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise SegmentGoneError(
                f"{self._table.location.uri} does not have the file {segment.path} any more."
            ) from None
