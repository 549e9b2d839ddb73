"""Appends documents to one collection."""

import os
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from backend.collections.documents import Document, Headers, encode
from backend.collections.errors import FencedError
from backend.collections.table import Segment, Snapshot, Table, as_collection_errors, end_id, source_id
from backend.domain import json

_ATTEMPTS = 5


class NewDocument(NamedTuple):
    """A document that has no offset yet. ``position`` is where its source has it, ``partition`` where it is to go."""

    position: int
    partition: int
    key: bytes | None
    value: bytes
    headers: Headers = ()
    deleted: bool = False


class CollectionWriter:
    """Appends what one source has, such as a partition of a Kafka topic. Blocks; used by one thread at a time.

    Every append reads the table's ends and the source's position at one version, and its commit is refused if another
    writer has moved any of them since: so an offset is never given twice and none is left out, whoever else writes.
    """

    def __init__(self, table: Table, source: str, at: Callable[[str], None] = lambda step: None) -> None:
        """``source`` names the source for good: the same positions must always mean the same messages. ``at`` is told
        the name of each step that is done."""
        self._table = table
        self._source = source_id(source)
        self._at = at

    @property
    def partitions(self) -> int:
        """How many partitions the table has."""
        return self._table.partitions

    def position(self) -> int | None:
        """The next position of the source that is not appended, None when nothing is. Raises CollectionError."""
        self._table.refresh()
        return self._table.transaction(self._source)

    def append(self, documents: Iterable[NewDocument], end: int) -> int:
        """Appends, in their order, those documents that are not appended yet, all or none of them; how many they are.
        The source then continues at ``end``. They are durable when this returns. May be repeated. Raises
        CollectionError; whether anything was appended is then unknown."""
        documents = list(documents)
        for attempt in range(1, _ATTEMPTS + 1):
            position = self.position()
            new = [document for document in documents if position is None or document.position >= position]
            if not new:
                return 0
            try:
                self._commit(new, end)
            except FencedError:
                # Whoever wrote at the same time may have appended the same documents.
                if attempt == _ATTEMPTS:
                    raise
                continue
            return len(new)
        raise AssertionError

    def _commit(self, new: list[NewDocument], end: int) -> None:
        from deltalake import Transaction

        self._at("planned")
        snapshot = self._table.snapshot()
        now = time.time_ns() // 1_000_000
        actions, transactions = [], [Transaction(self._source, end)]
        for partition, documents in _by_partition(new).items():
            placed = _placed(documents, snapshot, partition, now)
            actions.append(_add_documents(self._table, partition, placed))
            transactions.append(Transaction(end_id(partition), placed[-1].offset + 1))
        self._at("files_written")
        commit(self._table, actions, transactions)
        self._at("committed")


def _by_partition(new: Iterable[NewDocument]) -> Mapping[int, list[NewDocument]]:
    documents: dict[int, list[NewDocument]] = {}
    for document in new:
        documents.setdefault(document.partition, []).append(document)
    return documents


def _placed(new: Iterable[NewDocument], snapshot: Snapshot, partition: int, now: int) -> list[Document]:
    """With their offsets and times, of which neither ever falls."""
    segments = snapshot.segments[partition]
    timestamp = max(now, segments[-1].newest) if segments else now
    return [
        Document(offset, timestamp, document.key, document.value, document.headers, document.deleted)
        for offset, document in enumerate(new, snapshot.ends[partition])
    ]


def _add_documents(table: Table, partition: int, documents: list[Document]) -> Any:
    first, last = documents[0], documents[-1]
    described = Segment(first.offset, last.offset, "", 0, len(documents), oldest=first.timestamp, newest=last.timestamp)
    return add_data(table, partition, encode(documents), described)


def add_data(table: Table, partition: int, data: bytes, described: Segment, *, is_new: bool = True) -> Any:
    """Writes a data file, whose path and size are not in ``described``; the action that adds it to the table. No two
    files ever have the same name. ``is_new`` is false for documents that the table has already. Raises
    CollectionUnavailableError."""
    from deltalake.transaction import AddAction

    path = f"partition={partition}/{described.first:020d}-{uuid.uuid4().hex}.parquet"
    with as_collection_errors(table.location):
        write_file(table, path, data)
    stats = {
        "numRecords": described.documents,
        # The offsets of a reduced file are those that it stands for, with and without a document.
        "tightBounds": described.documents == described.last - described.first + 1,
        "minValues": {"offset": described.first, "timestamp": _iso(described.oldest)},
        "maxValues": {"offset": described.last, "timestamp": _iso(described.newest)},
        "nullCount": {"offset": 0, "timestamp": 0},
    }
    values: dict[str, str | None] = {"partition": str(partition)}
    return AddAction(path, len(data), values, described.newest, is_new, json.dumps(stats).decode())


def _iso(timestamp: int) -> str:
    seconds, milliseconds = divmod(timestamp, 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{milliseconds:03d}Z"


def write_file(table: Table, path: str, data: bytes) -> None:
    """Returns once it is durable. Raises OSError."""
    folder = table.location.folder
    if folder is None:
        with table.files.open_output_stream(path) as stream:
            stream.write(data)
        return
    target = folder / path
    target.parent.mkdir(exist_ok=True)
    with target.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    _sync(target.parent)


def commit(table: Table, actions: list[Any], transactions: list[Any]) -> None:
    """Moves the table from the version that is open to a next one, which is durable when this returns. Raises
    FencedError when one of the application transactions has moved since, and CollectionUnavailableError."""
    from deltalake import CommitProperties

    with as_collection_errors(table.location):
        table.delta.create_write_transaction(
            actions,
            "append",
            table.delta.schema(),
            ["partition"],
            commit_properties=CommitProperties(app_transactions=transactions),
        )
        if table.location.folder is not None:
            before = table.delta.version()
            table.delta.update_incremental()
            log = table.location.folder / "_delta_log"
            for version in range(before + 1, table.delta.version() + 1):
                _sync(log / f"{version:020d}.json")
            _sync(log)


def _sync(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return  # an old entry of the log, which a checkpoint holds
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
