"""Messages that become documents of a collection."""

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, field_validator, model_validator

from backend.connectors.mongodb.client import Client, write_error
from backend.connectors.mongodb.connection import MongodbConnection
from backend.connectors.mongodb.documents import BsonType, UnfitDocumentError, extended_text, from_json
from backend.domain import json
from backend.domain.capabilities import Deliver, DeliverBatch, DeliveryError, Options, Receipt, Sent
from backend.domain.message import Message
from backend.domain.model import ADVANCED
from backend.domain.paths import MISSING, FieldPath, get, parse_path
from backend.domain.reasons import Reason

_DUPLICATE_KEY = 11000
_UNFIT = "mongodb_document"

DatabaseName = Annotated[
    str,
    Field(pattern=r'^[^\s/\\."$*<>:|?]{1,63}$', description="Database.", examples=["shop"]),
]
CollectionName = Annotated[
    str,
    Field(pattern=r"^[^$\s]{1,200}$", description="Collection.", examples=["orders"]),
]


class MongodbOutputOptions(Options):
    """Documents that are written to one collection."""

    database: DatabaseName
    collection: CollectionName
    write: Literal["insert", "replace", "update", "delete"] = Field(
        "replace",
        description="Inserts a document for each message; replaces the document with the same key, or inserts it; sets "
        "the fields of the message in that document, or inserts it; or deletes it.",
    )
    key: list[FieldPath] = Field(
        default_factory=lambda: ["_id"],
        min_length=1,
        max_length=20,
        description="Fields that identify a document. Other fields than _id need a unique index, so that no document "
        "is inserted twice.",
        examples=[["order.id"]],
    )
    delete_when: FieldPath | None = Field(
        None,
        description="Field that is true in messages whose document is to be deleted, with replace and update.",
        examples=["deleted"],
    )
    format: Literal["plain", "extended"] = Field(
        "plain",
        description="Whether messages are plain JSON, or MongoDB's Extended JSON, such as "
        '{"at": {"$date": "2026-01-31T12:00:00Z"}}.',
    )
    types: dict[FieldPath, BsonType] = Field(
        default_factory=dict,
        description="Fields that are stored as another type than JSON has.",
        examples=[{"created_at": "date", "customer_id": "object_id"}],
    )
    ordered: bool = Field(
        False,
        description="Write the documents of a batch one after the other, in the order of the messages. Messages with "
        "the same ordering key are in order anyway.",
        json_schema_extra=ADVANCED,
    )
    acknowledged_by: Literal["majority", "primary"] = Field(
        "majority",
        description="Which servers of a replica set have a document before it counts as delivered: most of them, or "
        "the primary, which may lose it.",
        json_schema_extra=ADVANCED,
    )

    @field_validator("types")
    @classmethod
    def _check_types(cls, types: dict[str, BsonType]) -> dict[str, BsonType]:
        for path in types:
            parse_path(path)
        return types

    @model_validator(mode="after")
    def _check_deletion(self) -> "MongodbOutputOptions":
        if self.delete_when is not None and self.write in ("insert", "delete"):
            raise ValueError("A field that marks deletions needs replace or update.")
        return self


class _Write(NamedTuple):
    """What is done with a document, which is identified by ``key`` except when it is inserted."""

    kind: Literal["insert", "replace", "update", "delete"]
    key: dict[str, Any]
    document: dict[str, Any]


class _Writes:
    """What the messages of an output become."""

    def __init__(self, options: MongodbOutputOptions) -> None:
        self._options = options
        self._types = {parse_path(path): kind for path, kind in options.types.items()}
        self._key = [(path, parse_path(path)) for path in options.key]
        self._delete_when = parse_path(options.delete_when) if options.delete_when else None

    def of(self, message: Message) -> _Write:
        """Raises DeliveryError when the message makes none."""
        from bson import encode
        from bson.errors import BSONError

        try:
            document = from_json(message.body, self._options.format, self._types)
            encode(document)
            return self._write(document, message.id)
        except UnfitDocumentError as error:
            raise DeliveryError(_UNFIT, str(error), retryable=False, about_message=True) from None
        except (BSONError, OverflowError, UnicodeError) as error:
            text = f"The message cannot be a document of MongoDB: {error}."
            raise DeliveryError(_UNFIT, text, retryable=False, about_message=True) from None

    def _write(self, document: dict[str, Any], message_id: str) -> _Write:
        """Raises UnfitDocumentError."""
        kind = self._options.write
        if kind == "insert":
            # The same message makes the same document again.
            return _Write(kind, {}, document if "_id" in document else {"_id": message_id, **document})
        key = self._key_of(document)
        changed = _changed(document) if kind == "update" else document
        if kind == "delete" or (self._delete_when and get(document, self._delete_when) is True):
            return _Write("delete", key, {})
        return _Write(kind, key, changed)

    def _key_of(self, document: dict[str, Any]) -> dict[str, Any]:
        """Raises UnfitDocumentError."""
        parts: dict[str, Any] = {}
        for name, path in self._key:
            value = get(document, path)
            if value is MISSING or value is None or isinstance(value, dict | list):
                raise UnfitDocumentError(f"Field {name} of the key is missing, null, an object or a list.")
            parts[".".join(path)] = value
        return parts


class _Writing:
    """What single deliveries and batches share."""

    connection: MongodbConnection
    options: MongodbOutputOptions

    @cached_property
    def _writes(self) -> _Writes:
        return _Writes(self.options)

    async def open(self) -> None:
        from bson.codec_options import CodecOptions
        from pymongo import WriteConcern

        options = self.options
        self._client = Client(self.connection)
        client = await self._client.open()
        self._codec: CodecOptions[dict[str, Any]] = CodecOptions(tz_aware=True)
        self._collection = client[options.database].get_collection(
            options.collection,
            codec_options=self._codec,
            write_concern=WriteConcern("majority" if options.acknowledged_by == "majority" else 1),
        )

    async def close(self) -> None:
        await self._client.close()

    def target(self) -> str:
        return f"collection {self.options.database}.{self.options.collection} at {self.connection.servers}"

    def sent(self, message: Message) -> Sent:
        """The document as Extended JSON, which has MongoDB's types."""
        kind, key, document = self._writes.of(message)
        place = f"document with {extended_text(key)}" if key else ""
        deletes = kind == "delete"
        return Sent(b"" if deletes else extended_text(document).encode(), place, deletes)

    async def write(self, messages: Sequence[Message]) -> list[Receipt | DeliveryError]:
        """Raises DeliveryError when the whole batch failed, such as by a lost connection."""
        operations = [self._operation(message) for message in messages]
        outcomes: list[Receipt | DeliveryError] = [
            operation if isinstance(operation, DeliveryError) else Receipt(type(operation).__name__)
            for operation in operations
        ]
        left = [number for number, operation in enumerate(operations) if not isinstance(operation, DeliveryError)]
        while left:
            async with self._client.errors():
                failed = await self._written([operations[number] for number in left])
            for index, error in failed.items():
                outcomes[left[index]] = await self._outcome(operations[left[index]], error)
            # In order, nothing was written after the one that was refused.
            left = left[max(failed) + 1 :] if failed and self.options.ordered else []
        return outcomes

    async def _written(self, operations: Sequence[Any]) -> dict[int, dict[str, Any]]:
        """The errors of single documents, by their positions; in order, the first one."""
        from pymongo.errors import BulkWriteError

        try:
            await self._collection.bulk_write(operations, ordered=self.options.ordered)
        except BulkWriteError as error:
            details = error.details or {}
            if concern := details.get("writeConcernErrors"):
                text = f"MongoDB has not replicated the documents yet: {concern[0].get('errmsg', '')}"
                raise DeliveryError("mongodb_write_concern", text, retryable=True) from None
            errors = sorted(details["writeErrors"], key=lambda one: one["index"])
            return {one["index"]: one for one in (errors[:1] if self.options.ordered else errors)}
        return {}

    async def _outcome(self, operation: Any, error: dict[str, Any]) -> Receipt | DeliveryError:
        from bson import decode, encode
        from pymongo import InsertOne

        try:
            code, text = json.bounded_int(error["code"], -(2**31), 2**31 - 1), str(error.get("errmsg", ""))
        except (KeyError, ValueError):
            unusable = "MongoDB answered with an error that has no code."
            return DeliveryError(Reason.ANSWER, unusable, retryable=True)
        if code == _DUPLICATE_KEY and isinstance(operation, InsertOne):
            document: Any = operation._doc
            async with self._client.errors():
                stored = await self._collection.find_one({"_id": {"$eq": document["_id"]}})
            if stored == decode(encode(document), self._codec):
                return Receipt("InsertOne", "An earlier attempt has inserted the document.")
        return write_error(code, text)

    def _operation(self, message: Message) -> Any:
        """pymongo's operation, or a DeliveryError when the message makes none."""
        from pymongo import DeleteOne, InsertOne, ReplaceOne, UpdateOne

        try:
            kind, key, document = self._writes.of(message)
        except DeliveryError as error:
            return error
        # Compared as a value, whatever it looks like.
        where = {name: {"$eq": value} for name, value in key.items()}
        match kind:
            case "insert":
                return InsertOne(document)
            case "delete":
                return DeleteOne(where)
            case "replace":
                return ReplaceOne(where, document, upsert=True)
            case "update":
                return UpdateOne(where, {"$set": document} if document else {"$setOnInsert": {}}, upsert=True)


def _changed(document: dict[str, Any]) -> dict[str, Any]:
    """Raises UnfitDocumentError."""
    for name in document:
        if "." in name:
            raise UnfitDocumentError(
                f"The field {name} cannot be set: its name has a dot, which MongoDB takes for a path."
            )
    return {name: value for name, value in document.items() if name != "_id"}


class MongodbDeliver(_Writing, Deliver[MongodbConnection, MongodbOutputOptions]):
    """Writes a document for each message.

    At least once. Repeats do no harm: a document that is inserted without an _id has the message's ID."""

    options_model = MongodbOutputOptions

    async def deliver(self, message: Message) -> Receipt:
        [outcome] = await self.write([message])
        if isinstance(outcome, DeliveryError):
            raise outcome
        return outcome


class MongodbDeliverBatch(_Writing, DeliverBatch[MongodbConnection, MongodbOutputOptions]):
    """Writes the documents of a batch in one bulk write, with an outcome for each.

    At least once. Repeats do no harm: a document that is inserted without an _id has the message's ID."""

    options_model = MongodbOutputOptions

    async def deliver(self, messages: Sequence[Message]) -> Sequence[Receipt | DeliveryError]:
        return await self.write(messages)
