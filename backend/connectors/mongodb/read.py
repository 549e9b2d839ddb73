"""Documents of a collection that become messages."""

import time
from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, field_validator

from backend.connectors.mongodb.client import Client
from backend.connectors.mongodb.connection import MongodbConnection
from backend.connectors.mongodb.documents import (
    UnfitDocumentError,
    from_extended,
    plain_text,
    to_extended,
    to_json,
)
from backend.connectors.mongodb.write import CollectionName, DatabaseName
from backend.connectors.parts.batch_limit import FIRST_RECORDS, next_limit
from backend.domain import json
from backend.domain.capabilities import Batch, InputRecord, Options, ReadBatch
from backend.domain.model import ADVANCED, SAME_SOURCE, StrictModel
from backend.domain.paths import FieldPath, get, parse_path

_READ_SECONDS = 600.0
"""After this time, reading ends at the next batch."""
_CALL_SECONDS = 60.0
_ID_TYPES = ("null", "number", "string", "object", "binData", "objectId", "bool", "date", "timestamp")
"""The types that _id may have, in MongoDB's order."""


class WholeCollection(StrictModel):
    """Reads all documents, once or again and again."""

    type: Literal["whole"] = "whole"
    repeat_minutes: int | None = Field(
        None,
        ge=1,
        description="Minutes after which all documents are read again, as new messages. Without it they are read once.",
        json_schema_extra=SAME_SOURCE,
    )


class NewDocuments(StrictModel):
    """Reads new and changed documents by a field that grows."""

    type: Literal["incremental"] = "incremental"
    field: FieldPath = Field(
        "_id",
        description="Field whose value grows with each new or changed document, such as the time of its last change. "
        "It needs an index, and values of one type; documents without it are not read.",
        examples=["updatedAt"],
    )
    delay_seconds: int = Field(
        5,
        ge=0,
        le=86_400,
        description="Seconds for which a document is left before it is read, so that those that are written late are "
        "not missed. Concerns dates and object ids.",
        json_schema_extra=SAME_SOURCE,
    )


class MongodbReadOptions(Options):
    """Documents of a collection that become messages."""

    database: DatabaseName
    collection: CollectionName
    mode: Annotated[WholeCollection | NewDocuments, Field(discriminator="type")] = Field(
        description="Which documents are read."
    )
    filter: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="Condition on the documents, in MongoDB's query language as Extended JSON.",
        examples=[{"status": "paid", "total": {"$gt": 100}}],
    )
    fields: list[FieldPath] = Field(
        default_factory=list,
        max_length=500,
        description="Fields to read, beside _id and the field that grows. Without any, documents are read whole.",
        examples=[["customer.name", "total"]],
    )
    format: Literal["plain", "extended"] = Field(
        "plain",
        description="Whether messages are plain JSON, where dates and object ids are text, or MongoDB's Extended JSON, "
        "which keeps every type.",
    )
    most_documents: int = Field(
        500, ge=1, le=10_000, description="Most documents in a batch.", json_schema_extra=ADVANCED | SAME_SOURCE
    )

    @field_validator("filter")
    @classmethod
    def _check_filter(cls, condition: dict[str, JsonValue]) -> dict[str, JsonValue]:
        try:
            from_extended(condition)
        except UnfitDocumentError as error:
            raise ValueError(str(error)) from None
        return condition


class MongodbReadBatch(ReadBatch[MongodbConnection, MongodbReadOptions]):
    """Reads documents in the order of _id, or of a field that grows and _id.

    At least once. Reading goes on after the last document that was stored; a document that is read again has the same
    message ID unless it has changed. Deletions are not seen, nor are changes between two readings. Change streams are
    not read."""

    options_model = MongodbReadOptions

    async def open(self) -> None:
        from bson.codec_options import CodecOptions, DatetimeConversion
        from bson.raw_bson import RawBSONDocument
        from pymongo.read_concern import ReadConcern

        options = self.options
        self._client = Client(self.connection)
        self._admin = (await self._client.open()).admin
        self._codec: CodecOptions[dict[str, Any]] = CodecOptions(
            tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO
        )
        self._collection = self._admin.client[options.database].get_collection(
            options.collection,
            codec_options=CodecOptions(document_class=RawBSONDocument),
            # What a majority has is not rolled back after it was read.
            read_concern=ReadConcern("majority"),
        )
        self._name = f"{options.database}.{options.collection}"

    async def close(self) -> None:
        await self._client.close()

    async def read(self, breakpoint: Any) -> AsyncIterator[Batch]:
        """Ends after some minutes, before the lease does."""
        deadline = time.monotonic() + _READ_SECONDS
        async for batch in self._batches(breakpoint or {}):
            yield batch
            if time.monotonic() > deadline:
                return

    async def _batches(self, state: dict[str, Any]) -> AsyncIterator[Batch]:
        mode = self.options.mode
        if isinstance(mode, NewDocuments):
            async with self._client.errors(_CALL_SECONDS):
                until = await self._until(mode)
            async for records, position in self._pages(mode.field, state.get("after"), until, run=1):
                yield Batch(records, {"after": position})
            return
        run = state.get("run", 1)
        if "finished" in state:
            if mode.repeat_minutes is None or time.time() < state["finished"] + mode.repeat_minutes * 60:
                return
            run, state = run + 1, {}
        async for records, position in self._pages("_id", state.get("after"), None, run=run):
            yield Batch(records, {"run": run, "after": position})
        yield Batch((), {"run": run, "finished": int(time.time())})

    async def _pages(
        self, field: str, after: Any, until: Any, *, run: int
    ) -> AsyncIterator[tuple[list[InputRecord], Any]]:
        """Records in the order of the field and of _id, with the position of the last one."""
        steps = parse_path(field)
        name = ".".join(steps)
        order = [(name, 1)] if name == "_id" else [(name, 1), ("_id", 1)]
        projection = [".".join(parse_path(path)) for path in self.options.fields]
        fixed = [from_extended(self.options.filter), _bounded(name, until)]
        limit = FIRST_RECORDS
        while True:
            limit = min(limit, self.options.most_documents)
            condition = {"$and": [part for part in (*fixed, _following(name, after)) if part] or [{}]}
            async with self._client.errors(_CALL_SECONDS):
                cursor = self._collection.find(condition, [*projection, name] if projection else None)
                raw = await cursor.sort(order).limit(limit).to_list(None)
            if not raw:
                return
            documents = [document.raw for document in raw]
            records = []
            for document in map(self._decoded, documents):
                after = [to_extended(get(document, path)) for path in (steps, ("_id",))]
                records.append(self._record(document, run, after))
            yield records, after
            limit = next_limit(limit, [len(document) for document in documents])

    def _decoded(self, raw: bytes) -> dict[str, Any]:
        from bson import decode

        document: dict[str, Any] = decode(raw, self._codec)
        return document

    def _record(self, document: dict[str, Any], run: int, position: Any) -> InputRecord:
        identity = json.dumps([self._name, run, *position]).decode()
        key = plain_text(document["_id"]).encode() or None
        return InputRecord(to_json(document, self.options.format), key=key, identity=identity)

    async def _until(self, mode: NewDocuments) -> Any:
        """The value of the field that a document may have which is left for long enough; None for any."""
        from bson import ObjectId

        steps = parse_path(mode.field)
        newest = await self._collection.find_one({}, [".".join(steps)], sort=[(".".join(steps), -1)])
        value = get(self._decoded(newest.raw), steps) if newest is not None else None
        if not mode.delay_seconds or not isinstance(value, ObjectId | datetime):
            return None
        # By the server's clock, which sets such values where applications do not.
        moment: datetime = (await self._admin.command("hello"))["localTime"] - timedelta(seconds=mode.delay_seconds)
        return ObjectId.from_datetime(moment) if isinstance(value, ObjectId) else moment


def _bounded(name: str, until: Any) -> dict[str, Any]:
    if until is not None:
        return {name: {"$lt": until}}
    return {} if name == "_id" else {name: {"$ne": None}}


def _following(name: str, after: Any) -> dict[str, Any]:
    """What comes after a position, in MongoDB's order."""
    if after is None:
        return {}
    value, identifier = map(from_extended, after)
    later: dict[str, Any] = {"_id": {"$gt": identifier}}
    if types := _later_types(identifier):
        later = {"$or": [later, {"_id": {"$type": types}}]}
    if name == "_id":
        return later
    return {"$or": [{name: {"$gt": value}}, {"$and": [{name: {"$eq": value}}, later]}]}


def _later_types(value: Any) -> list[str]:
    """The types whose values come after all values of this one's type: $gt compares only within a type."""
    from bson import DatetimeMS, Decimal128, ObjectId, Timestamp

    match value:
        case None:
            kind = "null"
        case bool():
            kind = "bool"
        case int() | float() | Decimal128():
            kind = "number"
        case str():
            kind = "string"
        case Mapping():
            kind = "object"
        case bytes():
            kind = "binData"
        case ObjectId():
            kind = "objectId"
        case datetime() | DatetimeMS():
            kind = "date"
        case Timestamp():
            kind = "timestamp"
        case _:
            return []
    return list(_ID_TYPES[_ID_TYPES.index(kind) + 1 :])
