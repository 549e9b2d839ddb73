"""Messages that become documents of an index."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

from pydantic import Field, field_validator, model_validator

from backend.connectors.elasticsearch.client import Client, refused_document
from backend.connectors.elasticsearch.connection import ElasticsearchConnection
from backend.domain import json, message_templates, templates
from backend.domain.capabilities import Deliver, DeliverBatch, DeliveryError, Options, Receipt, Sent
from backend.domain.message import Message
from backend.domain.message_templates import MessageTemplate, TemplateSource, UnfitValueError
from backend.domain.model import ADVANCED
from backend.domain.paths import FieldPath, parse_path
from backend.domain.reasons import Reason

_NOT_IN_AN_INDEX = frozenset(' "*\\<|,>/?#:')
_ID_BYTES = 512
_LARGEST_VERSION = 2**63 - 1
_ANSWER = "filter_path=" + quote("items.*.status,items.*.result,items.*.error.type,items.*.error.reason", safe="")
_CONFLICT = 409
_NOT_FOUND = 404


class ElasticsearchOutputOptions(Options):
    """Documents that are written to an index."""

    index: MessageTemplate = Field(
        min_length=1,
        max_length=2000,
        description="Index, alias or data stream. {{order.country}} is replaced by that field's value, and "
        "{{$message.id}} by the message's ID; there are also key, received_at, content_type, pipeline, version, source "
        "and headers.NAME.",
        examples=["orders-{{order.country}}"],
    )
    document_id: MessageTemplate = Field(
        "{{$message.id}}",
        min_length=1,
        max_length=2000,
        description="ID of the document, with placeholders as in the index. Messages with the same ID write the same "
        "document.",
        examples=["{{order.id}}"],
    )
    action: Literal["index", "create", "update", "upsert", "delete"] = Field(
        "index",
        description="Writes the document, replacing one with the same ID; writes it unless there is one already; "
        "changes the fields of an existing document; changes them, or writes the document if there is none; or "
        "deletes it. Data streams need create.",
    )
    delete_when: FieldPath | None = Field(
        None,
        description="Field that is true in messages whose document is to be deleted, with index, update and upsert.",
        examples=["deleted"],
    )
    version: FieldPath | None = Field(
        None,
        description="Field with an integer that grows with each change of the document. A message that is not newer "
        "than the document is dropped, so that a late one does no harm; with index and delete.",
        examples=["order.revision"],
    )
    routing: MessageTemplate = Field(
        "",
        max_length=2000,
        description="Value that determines the document's shard, with placeholders as in the index; without it, the "
        "document's ID.",
        json_schema_extra=ADVANCED,
    )
    compress: bool = Field(True, description="Compress requests with gzip.", json_schema_extra=ADVANCED)

    @field_validator("index")
    @classmethod
    def _check_index(cls, index: str) -> str:
        _check_index_name(templates.without_placeholders(index))
        return index

    @model_validator(mode="after")
    def _check_together(self) -> "ElasticsearchOutputOptions":
        if self.delete_when is not None and self.action in ("create", "delete"):
            raise ValueError("Choose index, update or upsert, or remove the field that marks deletions.")
        if self.version is not None and self.action not in ("index", "delete"):
            raise ValueError("Choose index or delete, or remove the field with versions.")
        return self


class _Operation(NamedTuple):
    """``lines`` is what is sent for it; a deletion has no document."""

    action: str
    index_name: str
    id: str
    document: bytes
    lines: bytes


class _Operations:
    """What the messages of an output become."""

    def __init__(self, options: ElasticsearchOutputOptions) -> None:
        self._options = options
        self._index = message_templates.compile_text(options.index, message_templates.scalar_text)
        self._id = message_templates.compile_text(options.document_id, message_templates.scalar_text)
        self._routing = message_templates.compile_text(options.routing, message_templates.scalar_text)
        self._delete_when = parse_path(options.delete_when) if options.delete_when else None
        self._version = parse_path(options.version) if options.version else None

    def of(self, message: Message) -> _Operation:
        """Raises DeliveryError when the message makes none."""
        source = TemplateSource(message)
        try:
            return self._operation(message, source)
        except json.InvalidJsonError as error:
            text = f"A document has to be a JSON object; this message is not JSON: {error}"
            raise DeliveryError(Reason.NOT_JSON, text, retryable=False, about_message=True) from None
        except ValueError as error:
            raise message_templates.delivery_error(error) from None

    def _operation(self, message: Message, source: TemplateSource) -> _Operation:
        """Raises ValueError when the message makes none."""
        options = self._options
        index, id = self._index(source), self._id(source)
        target: dict[str, Any] = {"_index": index, "_id": id}
        _check_index_name(index)
        if not 0 < len(id.encode()) <= _ID_BYTES:
            raise UnfitValueError(f"The ID of a document has 1 to {_ID_BYTES} bytes.")
        if options.routing:
            target["routing"] = self._routing(source)
        if self._version is not None:
            target |= {"version": _version(source.get(self._version), options.version), "version_type": "external"}
        if options.action == "delete" or (self._delete_when and source.get(self._delete_when) is True):
            return _Operation("delete", index, id, b"", json.dumps({"delete": target}) + b"\n")
        document = _one_line(message, source)
        action, body = str(options.action), document
        if action in ("update", "upsert"):
            upsert = b',"doc_as_upsert":true' if action == "upsert" else b""
            action, target = "update", {**target, "retry_on_conflict": 3}
            body = b'{"doc":' + document + upsert + b"}"
        return _Operation(action, index, id, document, json.dumps({action: target}) + b"\n" + body + b"\n")


class _Writing:
    """What single deliveries and batches share."""

    connection: ElasticsearchConnection
    options: ElasticsearchOutputOptions

    async def open(self) -> None:
        self._client = Client(self.connection)

    @cached_property
    def _operations(self) -> _Operations:
        return _Operations(self.options)

    async def close(self) -> None:
        await self._client.close()

    def target(self) -> str:
        return f"index {self.options.index} at {self.connection.server}"

    def sent(self, message: Message) -> Sent:
        operation = self._operations.of(message)
        place = f"document {operation.id} of index {operation.index_name}"
        return Sent(operation.document, place, deletes=operation.action == "delete")

    def secrets(self) -> list[str]:
        return self.connection.sent_secrets()

    async def write(self, messages: Sequence[Message]) -> list[Receipt | DeliveryError]:
        """Raises DeliveryError when the whole batch failed, such as by a lost connection."""
        made = [self._made(message) for message in messages]
        operations = [one for one in made if isinstance(one, _Operation)]
        outcomes = iter(await self._written(operations))
        return [next(outcomes) if isinstance(one, _Operation) else one for one in made]

    async def _written(self, operations: Sequence[_Operation]) -> list[Receipt | DeliveryError]:
        if not operations:
            return []
        lines = b"".join(operation.lines for operation in operations)
        results = await self._client.bulk(lines, _ANSWER, compressed=self.options.compress)
        if len(results) != len(operations):
            text = f"The cluster answered about {len(results)} documents of {len(operations)}."
            raise DeliveryError(Reason.ANSWER, text, retryable=True)
        return [self._outcome(*pair) for pair in zip(operations, results, strict=True)]

    def _outcome(self, operation: _Operation, result: dict[str, Any]) -> Receipt | DeliveryError:
        status = result["status"]
        if "error" not in result:  # also when there was nothing to delete
            return Receipt(str(status), str(result.get("result", "")))
        if status == _CONFLICT and operation.action == "create":
            return Receipt(str(status), "There is a document with this ID already.")
        if status == _CONFLICT and operation.action != "update":
            return Receipt(str(status), "The document is as new as the message, or newer.")
        if status == _CONFLICT:
            text = "The document was changed by others at the same time."
            return DeliveryError("elasticsearch_conflict", text, retryable=True, status=str(status))
        if status == _NOT_FOUND and operation.action == "delete":
            return Receipt(str(status), "There is no such index.")
        return refused_document(result, about_its_index=bool(templates.placeholders(self.options.index)))

    def _made(self, message: Message) -> _Operation | DeliveryError:
        try:
            return self._operations.of(message)
        except DeliveryError as error:
            return error


def _check_index_name(name: str) -> None:
    if not name.isprintable() or name != name.lower() or not _NOT_IN_AN_INDEX.isdisjoint(name):
        raise UnfitValueError(
            f"{name[:100]!r} cannot be the name of an index: it may have neither capital letters nor spaces nor any of "
            '" * \\ < > | , / ? # :.'
        )


def _version(value: Any, field: str | None) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _LARGEST_VERSION:
        raise UnfitValueError(f"Field {field} has to be an integer from 0 to 2^63-1, the version of the document.")
    return value


def _one_line(message: Message, source: TemplateSource) -> bytes:
    """The body as it is, unless it has line breaks, which would end it."""
    if not isinstance(source.document, dict):
        raise UnfitValueError("A document has to be a JSON object.")
    if b"\n" in message.body or b"\r" in message.body:
        return json.dumps(source.document)
    return message.body


class ElasticsearchDeliver(_Writing, Deliver[ElasticsearchConnection, ElasticsearchOutputOptions]):
    """Writes a document for each message.

    At least once. A repeat writes the same document again, as long as its ID comes from the message; it may undo a
    newer message for the same document that was written in between, unless a field with versions is named. The
    cluster remembers versions of deleted documents for a minute only (its setting index.gc_deletes). It refuses
    documents with a field _id, as those of MongoDB have: a step `remove` takes it out."""

    options_model = ElasticsearchOutputOptions

    async def deliver(self, message: Message) -> Receipt:
        [outcome] = await self.write([message])
        if isinstance(outcome, DeliveryError):
            raise outcome
        return outcome


class ElasticsearchDeliverBatch(_Writing, DeliverBatch[ElasticsearchConnection, ElasticsearchOutputOptions]):
    """Writes the documents of a batch in one bulk request, with an outcome for each.

    At least once. A repeat writes the same document again, as long as its ID comes from the message; it may undo a
    newer message for the same document that was written in between, unless a field with versions is named. The
    cluster remembers versions of deleted documents for a minute only (its setting index.gc_deletes). It refuses
    documents with a field _id, as those of MongoDB have: a step `remove` takes it out."""

    options_model = ElasticsearchOutputOptions

    async def deliver(self, messages: Sequence[Message]) -> Sequence[Receipt | DeliveryError]:
        return await self.write(messages)
