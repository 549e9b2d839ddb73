"""What the rows of a file are made of: staged messages as documents, and the columns that they have in common."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from backend.domain import json, paths
from backend.domain.capabilities import DeliveryError
from backend.domain.export_policy import ColumnType, ExportPolicy
from backend.domain.message_maker import is_json
from backend.domain.numbers import is_double
from backend.domain.reasons import Reason

MESSAGE_ID = "_message_id"
RECEIVED_AT = "_received_at"

_MOST_FIELDS = 2000
_LARGEST_INT = 2**63
_LARGEST_EXACT_INT = 2**53
_EXACT_DIGITS = 15
"""Every decimal number with so many digits survives being stored as a double."""


class StagedMessage(NamedTuple):
    """A message as it is staged."""

    id: str
    received_at: str
    content_type: str
    body: bytes


@dataclass(frozen=True)
class Column:
    """A column of a file. ``steps`` lead to its value in the document; None for one of the message's own fields."""

    title: str
    steps: tuple[str, ...] | None
    type: ColumnType


class Document(NamedTuple):
    """A message and what its body says."""

    message: StagedMessage
    content: Any

    def value(self, column: Column) -> Any:
        """None for what is missing."""
        if column.steps is None:
            return self.message.id if column.title == MESSAGE_ID else self.message.received_at
        if len(column.steps) == 1 and type(self.content) is dict:  # nearly always
            return self.content.get(column.steps[0])
        value = paths.get(self.content, column.steps)
        return None if value is paths.MISSING else value


def documents(messages: Iterable[StagedMessage]) -> Iterator[Document]:
    """The messages with their contents. What is no JSON object becomes one with the field ``value``; a body that is
    not JSON is its text, or base64 of what is no text."""
    for message in messages:
        content: Any = json.loads(message.body) if is_json(message.content_type) else _text(message.body)
        yield Document(message, content if isinstance(content, dict) else {"value": content})


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        import base64

        return base64.b64encode(body).decode()


class Columns:
    """Finds the columns of a file and their types. All documents are looked at before any is written."""

    def __init__(self, policy: ExportPolicy) -> None:
        self._policy = policy
        self._kinds: dict[str, set[str]] = {}
        self._steps = [(column, paths.parse_path(column.path)) for column in policy.columns]

    @property
    def need_documents(self) -> bool:
        """Whether the columns depend on the documents; not if they are named and have no types, or are not needed."""
        return self._policy.is_typed or (self._policy.format == "csv" and not self._policy.columns)

    def look_at(self, rows: Iterable[Document]) -> None:
        """Raises DeliveryError when there are too many columns."""
        if self._steps:
            for row in rows:
                for column, steps in self._steps:
                    value = paths.get(row.content, steps)
                    self._kinds.setdefault(column.title, set()).add("null" if value is paths.MISSING else _kind(value))
            return
        kinds = self._kinds
        for row in rows:
            if not row.content.keys() <= kinds.keys():
                for name in row.content:
                    kinds.setdefault(name, set())
                if len(kinds) > _MOST_FIELDS:
                    text = f"The messages of this file have more than {_MOST_FIELDS:,} fields: choose columns."
                    raise DeliveryError(Reason.TOO_MANY_FIELDS, text, retryable=False)
            if self._policy.is_typed:
                for name, value in row.content.items():
                    kinds[name].add(_kind(value))

    def result(self) -> list[Column]:
        """The columns that were found, in the order in which they were."""
        own = [MESSAGE_ID, RECEIVED_AT] if self._policy.message_fields else []
        columns = [Column(title, None, ColumnType.TEXT) for title in own]
        if self._steps:
            return columns + [
                Column(
                    column.title,
                    steps,
                    ColumnType(column.type) if column.type else _type(self._kinds.get(column.title, set())),
                )
                for column, steps in self._steps
            ]
        return columns + [Column(name, (name,), _type(kinds)) for name, kinds in self._kinds.items() if name not in own]


def converted(document: Document, column: Column) -> Any:
    """The value as its column's type. Raises DeliveryError when it does not fit."""
    value = document.value(column)
    if value is None:
        return None
    try:
        return _CONVERSIONS[column.type](value)
    except (TypeError, ValueError, OverflowError):
        raise DeliveryError(
            Reason.UNFIT_VALUE,
            f"The column {column.title} has the type {column.type}, which a value of message {document.message.id} "
            "does not fit. Change or remove the type, publish, and retry with the published version.",
            retryable=False,
        ) from None


def _integer(value: Any) -> int:
    if type(value) is int and -_LARGEST_INT <= value < _LARGEST_INT:
        return value
    raise ValueError


def _number(value: Any) -> float:
    if type(value) is int or isinstance(value, Decimal):
        return float(value)
    raise ValueError


def _boolean(value: Any) -> bool:
    if type(value) is bool:
        return value
    raise ValueError


def _timestamp(value: Any) -> datetime:
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise ValueError("The time has no zone.")
    return moment


def _json(value: Any) -> str:
    return json.dumps(value).decode()


_CONVERSIONS = {
    ColumnType.TEXT: json.text,
    ColumnType.INTEGER: _integer,
    ColumnType.NUMBER: _number,
    ColumnType.BOOLEAN: _boolean,
    ColumnType.TIMESTAMP: _timestamp,
    ColumnType.JSON: _json,
}


def _kind(value: Any) -> str:
    """Finer than the types of columns: a number that would lose digits as a double is of another kind."""
    kind = _KINDS.get(type(value), "json")
    if kind == "integer" and not -_LARGEST_EXACT_INT <= value <= _LARGEST_EXACT_INT:
        return "large" if -_LARGEST_INT <= value < _LARGEST_INT else "exact"
    if kind == "number" and len(value.as_tuple().digits) > _EXACT_DIGITS and not is_double(value):
        return "exact"
    return kind


_KINDS = {type(None): "null", bool: "boolean", int: "integer", Decimal: "number", str: "text"}


def _type(kinds: set[str]) -> ColumnType:
    """The narrowest type that keeps every value as it is. Numbers that no number type keeps are text; columns with
    values of different kinds are JSON."""
    kinds = kinds - {"null"}
    if kinds <= {"text"}:
        return ColumnType.TEXT
    if kinds == {"boolean"}:
        return ColumnType.BOOLEAN
    if kinds <= {"integer", "large"}:
        return ColumnType.INTEGER
    if kinds <= {"integer", "number"}:
        return ColumnType.NUMBER
    if kinds <= {"integer", "number", "large", "exact"}:
        return ColumnType.TEXT
    return ColumnType.JSON


def schema_of(columns: Sequence[Column]) -> list[dict[str, str]]:
    """For the manifest."""
    return [{"name": column.title, "type": str(column.type)} for column in columns]
