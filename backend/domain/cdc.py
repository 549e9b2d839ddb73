"""CDCv2, the change data capture format of Materialize: updates of a multiset of records, each with a time and a
difference, and progress statements, which say how many updates there are at which times.

docs/adr/0021-change-streams.md gives the sources. A record is held as its Avro datum, which identifies it.
"""

import io
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import fastavro

from backend.domain import formats
from backend.domain.avro.schema import AvroSchema

NAMESPACE = "com.materialize.cdc"


class Update(NamedTuple):
    """The record has ``diff`` more copies from that time on."""

    data: bytes
    time: int
    diff: int


class Progress(NamedTuple):
    """How many distinct updates there are at each time from ``lower`` to before ``upper``; none at times that are not
    in ``counts``. A statement is never revoked."""

    lower: int
    upper: int
    counts: tuple[tuple[int, int], ...]


def consolidated(changes: Iterable[tuple[bytes, int]]) -> Mapping[bytes, int]:
    """The difference of each record, without those that come to nothing."""
    diffs: dict[bytes, int] = {}
    for data, diff in changes:
        diffs[data] = diffs.get(data, 0) + diff
    return {data: diff for data, diff in diffs.items() if diff}


def delta_of(document: Any) -> tuple[Any, int]:
    """The record of ``{"record": {...}, "delta": n}``, and by how many it becomes more. Raises ValueError, whose text
    is for people."""
    match document:
        case {"record": record, "delta": int(delta), **more} if delta and not isinstance(delta, bool) and not more:
            return record, delta
    raise ValueError('It has to be {"record": {...}, "delta": n}, with a whole number other than 0.')


class Format:
    """Messages about records of one schema."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        """``record`` is an Avro schema. Raises ValueError."""
        self._data = {**record, "name": "data", "namespace": NAMESPACE}
        self._record = AvroSchema(self._data)
        self._message = AvroSchema(self.schema)

    @cached_property
    def schema(self) -> list[Any]:
        """The Avro schema of messages. Readers tell the branches apart by their order."""
        update = {
            "type": "record",
            "name": "update",
            "namespace": NAMESPACE,
            "fields": [
                {"name": "data", "type": self._data},
                {"name": "time", "type": "long"},
                {"name": "diff", "type": "long"},
            ],
        }
        counts = {
            "type": "record",
            "name": "counts",
            "fields": [{"name": "time", "type": "long"}, {"name": "count", "type": "long"}],
        }
        progress = {
            "type": "record",
            "name": "progress",
            "namespace": NAMESPACE,
            "fields": [
                {"name": "lower", "type": {"type": "array", "items": "long"}},
                {"name": "upper", "type": {"type": "array", "items": "long"}},
                {"name": "counts", "type": {"type": "array", "items": counts}},
            ],
        }
        return [{"type": "array", "items": update}, progress]

    def datum(self, document: Any) -> bytes:
        """A record as its Avro datum. Raises ValueError when it does not fit the schema."""
        return self._record.write(document)

    def document(self, datum: bytes) -> Any:
        """The record as a JSON value. Raises ValueError."""
        return formats.json_values(self._record.read(datum))

    def avro(self, message: Sequence[Update] | Progress) -> bytes:
        """The message as an Avro datum."""
        written = io.BytesIO()
        fastavro.schemaless_writer(written, self._message.parsed, self._avro_value(message))
        return written.getvalue()

    def avro_file(self, messages: Iterable[Sequence[Update] | Progress]) -> bytes:
        """Messages as an Avro object container file, which holds its schema."""
        written = io.BytesIO()
        fastavro.writer(written, self._message.parsed, [self._avro_value(message) for message in messages])
        return written.getvalue()

    def json(self, message: Sequence[Update] | Progress) -> dict[str, Any]:
        """The message as a JSON value."""
        if isinstance(message, Progress):
            return {"progress": _progress_value(message)}
        return {"updates": [{**update._asdict(), "data": self.document(update.data)} for update in message]}

    def _avro_value(self, message: Sequence[Update] | Progress) -> Any:
        if isinstance(message, Progress):
            return _progress_value(message)
        return [{"data": self._native(update.data), "time": update.time, "diff": update.diff} for update in message]

    def _native(self, datum: bytes) -> Any:
        return self._record.read(datum)


def _progress_value(progress: Progress) -> dict[str, Any]:
    return {
        "lower": [progress.lower],
        "upper": [progress.upper],
        "counts": [{"time": time, "count": count} for time, count in progress.counts],
    }
