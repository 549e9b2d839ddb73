"""Queries on collections. A collection is a connector of that type; what it holds is in its Delta table."""

import base64
import re
import threading
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from django.db.models import QuerySet

from backend.apps.collections.models import WrittenCollection
from backend.apps.connectors.models import Connector
from backend.apps.connectors.selectors import connectors_of
from backend.apps.workspaces.models import Workspace
from backend.collections.documents import Document
from backend.collections.errors import CollectionError, CollectionMissingError
from backend.collections.reader import CollectionReader
from backend.collections.store import CollectionStore, unreachable
from backend.connectors.collection import Collection, CollectionConnection
from backend.connectors.materialize_cdc import MaterializeCdc
from backend.domain.collected import partition_of
from backend.domain.errors import ConfigError
from backend.settings import platform_settings

_READERS_KEPT = 200
_SHOWN_CHARACTERS = 20_000
_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_LONGEST_TOPIC = 249


def collections_of(workspace: Workspace) -> QuerySet[Connector]:
    return connectors_of(workspace).filter(type=Collection.type)


def streams_fed_by(connector: Connector) -> QuerySet[Connector]:
    """The change streams to which a collection is a source."""
    if connector.type != Collection.type:
        return Connector.objects.none()
    return Connector.objects.filter(
        workspace=connector.workspace_id, type=MaterializeCdc.type, connection__collections__contains=[connector.name]
    )


def connection_of(collection: Connector) -> CollectionConnection:
    """How it is configured. Raises UnreadableConfigError."""
    return CollectionConnection.load_stored(collection.connection, collection.schema_version)


def is_written(collection: Connector) -> bool:
    """Whether it is known to have a table."""
    return WrittenCollection.objects.filter(collection=collection).exists()


def topic_name(collection: Connector) -> str:
    """Its name as a topic of Kafka: what Kafka does not allow is percent-encoded, with a dot for the percent sign."""
    name = collection.name
    if _LEGAL_TOPIC.fullmatch(name) and name not in (".", ".."):
        return name
    encoded = quote(name, safe="").replace("~", "%7E").replace("%", ".")
    return encoded if len(encoded) <= _LONGEST_TOPIC and encoded not in (".", "..") else str(collection.pk)


@lru_cache
def collection_store() -> CollectionStore:
    """Where this installation has its collections."""
    return CollectionStore(platform_settings().collections_url)


class _Readers:
    """Open readers, which know what they have read of a table's log."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, CollectionReader] = {}

    def of(self, collection: Connector) -> CollectionReader:
        name = str(collection.pk)
        with self._lock:
            reader = self._open.get(name)
        if reader is not None:
            try:
                reader.refresh()
            except CollectionError:
                with self._lock:
                    self._open.pop(name, None)
                raise
            return reader
        location = collection_store().location(str(collection.workspace_id), name)
        try:
            reader = CollectionReader(location)
        except CollectionMissingError:
            if is_written(collection):
                raise unreachable(location) from None
            raise
        with self._lock:
            if len(self._open) >= _READERS_KEPT:
                self._open.pop(next(iter(self._open)))
            self._open[name] = reader
        return reader


_readers = _Readers()


def reader_of(collection: Connector) -> CollectionReader:
    """A collection, or the log of a change stream, at its newest version. Raises CollectionMissingError when nothing
    was ever written to it, and other errors of collections."""
    return _readers.of(collection)


@dataclass(frozen=True)
class PartitionState:
    """One partition of a collection. Times are in milliseconds since 1970, None without documents."""

    partition: int
    start_offset: int
    end_offset: int
    documents: int
    bytes: int
    files: int
    oldest: int | None
    newest: int | None


@dataclass(frozen=True)
class CollectionState:
    """What a collection holds. ``unavailable`` says why that is not known."""

    partitions: list[PartitionState] = field(default_factory=list)
    leader_epoch: int = 0
    unavailable: str = ""


def collection_state(collection: Connector) -> CollectionState:
    """What it holds now; nothing when nothing was ever written to it."""
    try:
        reader = reader_of(collection)
    except CollectionMissingError:
        return CollectionState()
    except CollectionError as error:
        return CollectionState(unavailable=str(error))
    return CollectionState(
        [_partition_state(reader, partition) for partition in range(reader.partitions)], reader.leader_epoch
    )


def _partition_state(reader: CollectionReader, partition: int) -> PartitionState:
    segments = reader.segments(partition)
    return PartitionState(
        partition=partition,
        start_offset=reader.start_offset(partition),
        end_offset=reader.end_offset(partition),
        documents=sum(segment.documents for segment in segments),
        bytes=sum(segment.bytes for segment in segments),
        files=len(segments),
        oldest=segments[0].oldest if segments else None,
        newest=segments[-1].newest if segments else None,
    )


def documents_of(
    collection: Connector, *, partition: int | None, key: str | None, before: int | None, limit: int
) -> dict[str, Any]:
    """Documents of one partition, newest first, whose offsets are lower than ``before``; by default the newest ones.
    With a key only those that have it, by default of the partition to which the key belongs. Raises ConfigError at a
    wrong value, CollectionError."""
    try:
        reader = reader_of(collection)
    except CollectionMissingError:
        return {"partition": partition or 0, "results": [], "before": None}
    if partition is None:
        partition = partition_of(key.encode(), connection_of(collection).partitions) if key is not None else 0
    if not 0 <= partition < reader.partitions:
        raise ConfigError({"partition": [f"The collection has the partitions 0 to {reader.partitions - 1}."]})
    start, end = reader.start_offset(partition), reader.end_offset(partition)
    before = end if before is None else min(before, end)
    if key is not None:
        documents, looked_at = reader.find(partition, key.encode(), before, limit)
    else:
        looked_at = max(start, before - limit)
        documents = _read(reader, partition, looked_at, before)[::-1]
    return {
        "partition": partition,
        "results": [shown(document) for document in documents],
        "before": looked_at if looked_at > start else None,
    }


def _read(reader: CollectionReader, partition: int, offset: int, end: int) -> list[Document]:
    documents: list[Document] = []
    while offset < end:
        read = reader.read(partition, offset, 1024 * 1024)
        documents += [document for document in read if document.offset < end]
        offset = read[-1].offset + 1
    return documents


def shown(document: Document) -> dict[str, Any]:
    """For people: bytes that are no text in base64, and long values cut off."""
    value, encoding = _text(document.value)
    key, key_encoding = _text(document.key) if document.key is not None else (None, "utf-8")
    return {
        "offset": document.offset,
        "timestamp": document.timestamp,
        "key": key,
        "key_encoding": key_encoding,
        "value": value[:_SHOWN_CHARACTERS],
        "encoding": encoding,
        "is_cut": len(value) > _SHOWN_CHARACTERS,
        "bytes": len(document.value),
        "deleted": document.deleted,
        "headers": {name: _text(content)[0] for name, content in document.headers},
    }


def _text(content: bytes) -> tuple[str, str]:
    try:
        return content.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(content).decode(), "base64"
