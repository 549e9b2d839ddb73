"""A message on its way into a collection, as a Kafka record: it holds all that the stage which appends it needs."""

import zlib
from typing import Any
from uuid import UUID

import msgspec

from backend.domain import message as names
from backend.domain import routing
from backend.domain.capabilities import CollectedDocument
from backend.domain.message import KafkaHeaders, MalformedMessageError, Message
from backend.domain.records import Record

COLLECTION = "collection"
WORKSPACE = "collection-workspace"
PARTITION = "collection-partition"
PARTITIONS = "collection-partitions"
KEY = "collection-key"
DELETED = "collection-deleted"

KEPT_HEADERS = (
    names.PIPELINE,
    names.VERSION,
    names.MESSAGE_ID,
    names.RECEIVED_AT,
    names.CONTENT_TYPE,
    names.TRACEPARENT,
)
"""What a document keeps of its message as headers."""


def partition_of(key: bytes, partitions: int) -> int:
    """The partition to which documents with the key belong."""
    return zlib.crc32(key) % partitions


class Collected(msgspec.Struct, frozen=True):
    """A document that is to be appended to a collection. ``collection`` and ``workspace`` are ids."""

    collection: str
    workspace: str
    document: CollectedDocument
    value: bytes
    headers: tuple[tuple[str, bytes], ...]


def collected_record(message: Message, document: CollectedDocument, *, collection: str, workspace_id: str) -> Record:
    """The message, handed over to the stage that appends to collections. All that goes to one partition of a
    collection has the same key, so that one task appends it."""
    headers = [(name, value) for name, value in message.headers() if name in KEPT_HEADERS]
    headers += [
        (COLLECTION, collection.encode()),
        (WORKSPACE, workspace_id.encode()),
        (PARTITION, str(document.partition).encode()),
        (PARTITIONS, str(document.partitions).encode()),
        (KEY, document.key),
    ]
    if document.deleted:
        headers.append((DELETED, b"1"))
    key = f"{collection}/{document.partition}".encode()
    return Record(routing.COLLECTION, key, message.body, headers)


def read_collected(*, value: bytes | None, headers: KafkaHeaders) -> Collected:
    """Raises MalformedMessageError."""
    raw: dict[str, bytes] = {name: content or b"" for name, content in headers}
    try:
        document = CollectedDocument(
            key=raw[KEY], partition=int(raw[PARTITION]), partitions=int(raw[PARTITIONS]), deleted=DELETED in raw
        )
        return Collected(
            collection=_id(raw[COLLECTION]),
            workspace=_id(raw[WORKSPACE]),
            document=document,
            value=value or b"",
            headers=tuple((name, raw[name]) for name in KEPT_HEADERS if name in raw),
        )
    except KeyError as error:
        raise MalformedMessageError(f"The record has no header {error}.") from None
    except ValueError as error:
        raise MalformedMessageError(f"The record's headers cannot be read: {error}.") from None


def _id(raw: Any) -> str:
    return str(UUID(raw.decode()))
