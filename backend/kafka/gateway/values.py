"""How consumers see documents: their values as JSON or Avro, and deleted ones."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from backend.collections.documents import Document
from backend.domain import formats, json
from backend.domain.avro.schema import AvroSchema
from backend.kafka.gateway.ports import Record

Deletions = Literal["kafka", "cdc"]
"""``kafka``: a deletion is a tombstone, a record without a value. ``cdc``: every value that is a JSON object has
``_meta.is_deleted``, 0 or 1, and a deletion keeps its value."""

_META = "_meta"
_KEPT, _DELETED = b'{"_meta":{"is_deleted":0}', b'{"_meta":{"is_deleted":1}'


@dataclass(frozen=True)
class Schema:
    """An Avro schema of the registry, parsed. It is in effect for documents that are appended at ``since`` or later, in
    milliseconds since 1970, until a next version is."""

    id: int
    parsed: AvroSchema
    since: int


@dataclass(frozen=True)
class Values:
    """The form of a collection's values. ``schemas`` are the versions of its schema, the oldest first, if values are
    sent as Avro."""

    deletions: Deletions = "kafka"
    schemas: Sequence[Schema] = ()

    def records(self, documents: Iterable[Document]) -> tuple[list[Record], bool]:
        """What consumers receive of the documents, and whether all values fit one of the schemas. One that fits none is
        sent as it is: the consumer then reports it, and can go on behind it."""
        if self.deletions == "kafka" and not self.schemas:
            return [_tombstone(one) if one.deleted else Record._make(one[:5]) for one in documents], True
        records, all_fit = [], True
        for document in documents:
            value = self._value(document)
            if value is None and not document.deleted:
                value, all_fit = document.value, False
            records.append(Record(document.offset, document.timestamp, document.key, value, document.headers))
        return records, all_fit

    def _value(self, document: Document) -> bytes | None:
        if self.deletions == "cdc":
            return flagged(document.value, document.deleted)
        if document.deleted:
            return None
        return self._avro(document) if self.schemas else document.value

    def _avro(self, document: Document) -> bytes | None:
        try:
            parsed = json.loads(document.value)
        except json.InvalidJsonError:
            return None
        for schema in self._by_preference(document.timestamp):
            try:
                return formats.confluent_header(schema.id) + schema.parsed.write(parsed)
            except ValueError:
                continue
        return None

    def _by_preference(self, timestamp: int) -> Iterator[Schema]:
        """The version that was in effect, then former and later ones. What is preferred never changes, so neither does
        the record of a document, however many versions there are when it is read."""
        following = bisect_right(self.schemas, timestamp, key=lambda schema: schema.since)
        yield from reversed(self.schemas[:following])
        yield from self.schemas[following:]


def _tombstone(document: Document) -> Record:
    return Record(document.offset, document.timestamp, document.key, None, document.headers)


def flagged(value: bytes | None, deleted: bool) -> bytes:
    """The value with the flag. A value that is no JSON object stays as it is, unless its document is deleted."""
    text = (value or b"").strip()
    if not text.startswith(b"{"):
        return _DELETED + b"}" if deleted else value or b""
    head = _DELETED if deleted else _KEPT
    if b'"_meta"' not in text:
        rest = text[1:].lstrip()
        return head + rest if rest.startswith(b"}") else head + b"," + rest
    try:
        parsed = json.loads(text)
    except json.InvalidJsonError:
        return value or b""
    meta = parsed.get(_META)
    others = meta if isinstance(meta, dict) else {}
    return json.dumps({**parsed, _META: {**others, "is_deleted": int(deleted)}})
