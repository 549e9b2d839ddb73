"""The far ends of pipelines in the matrix: systems that records are written to or read from without Headrace.

An end of a new connector is a subclass of ``Inlet`` or ``Outlet`` in a module of this package; the matrix finds it.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, ClassVar

from backend.domain import json as exact
from backend.domain.message import new_message_id
from tests.infra import Server

Record = dict[str, Any]

RECORDS: list[Record] = [
    {"id": 1, "text": 'São Paulo, "quoted", it\'s\na \\ line; %s 日本語 🚀', "flag": True},
    {"id": 2, "flag": False, "big": 2**63 - 1},
    {"id": 3, "text": "", "big": -(2**63)},
    {"id": 4, "amount": Decimal("12345678901234567890.123456789")},
    {"id": 5, "at": "2026-01-31T23:59:59.123456-03:00"},
    {"id": 6, "document": {"a": [1, {"b": None}, "x,y"], "n": Decimal("0.10"), "big": 2**63}},
    {"id": 7, "text": "é" * 450_000},
    {"id": 8, "document": {"lines": [{"sku": "a", "price": 0.1, "none": None}], "ok": True}},
]
"""What connectors tend to change. A field that is missing may arrive as null."""
FIELDS = ("id", "text", "flag", "big", "amount", "at", "document")


def canonical(record: Record, *, has_texts_of_documents: bool = False) -> Record:
    """The same for every way in which a system represents a record. A system that keeps a text as JSON has one within
    another, if what was read ``has_texts_of_documents``."""
    values = {name: record[name] for name in FIELDS if record.get(name) is not None}
    if "flag" in values:
        values["flag"] = bool(values["flag"])
    if "amount" in values:
        values["amount"] = Decimal(str(values["amount"])).normalize()
    if "at" in values:
        values["at"] = _moment(values["at"])
    if "document" in values:
        document = values["document"]
        document = parsed(document) if isinstance(document, str | bytes) else document
        document = parsed(document) if isinstance(document, str) and has_texts_of_documents else document
        values["document"] = _numbers(document)
    return values


def parsed(body: bytes | str) -> Any:
    return json.loads(body, parse_float=Decimal)


def _moment(value: datetime | str) -> str:
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(value.replace("Z", "+00:00"))
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).isoformat()


def _numbers(value: Any) -> Any:
    match value:
        case dict():
            return {name: _numbers(part) for name, part in value.items()}
        case list():
            return [_numbers(part) for part in value]
        case bool() | None | str():
            return value
    return Decimal(str(value)).normalize()


def _numbers_in(value: Any) -> Iterator[int | float | Decimal]:
    match value:
        case dict() | list():
            for part in value.values() if isinstance(value, dict) else value:
                yield from _numbers_in(part)
        case int() | float() | Decimal():
            yield value


def _is_held(number: float | Decimal, bits: int) -> bool:
    return not isinstance(number, Decimal) and -(2 ** (bits - 1)) <= number < 2 ** (bits - 1)


class End(ABC):
    type: ClassVar[str]
    """Type of the connector."""
    fixtures: ClassVar[tuple[str, ...]] = ()
    """Those that start what it needs."""
    servers: ClassVar[tuple[Callable[[], Server], ...]] = ()
    """What it needs and no fixture starts."""
    marker: ClassVar[str] = ""
    """Of pytest, for ends whose servers are not installed for every run."""
    title: ClassVar[str] = ""
    """Of the system, where several have the same type of connector."""
    integer_bits: ClassVar[int | None] = None
    """What the integers may have that the server of the tests holds without loss, which then holds no decimals."""
    has_texts_of_documents: ClassVar[bool] = False
    """Whether it has no type for documents, so that they are read as texts."""
    connection: dict[str, Any]
    options: dict[str, Any]

    def __init__(self) -> None:
        self.name = new_message_id()

    @classmethod
    def holds(cls, record: Record) -> bool:
        """Whether the server of the tests can hold it without loss."""
        bits = cls.integer_bits
        return bits is None or all(_is_held(number, bits) for number in _numbers_in(record))

    def close(self) -> None:  # noqa: B027
        """Releases what the end holds on the side of the test."""


class Inlet(End):
    """A system that a pipeline reads."""

    transforms: ClassVar[list[dict[str, Any]]] = []
    """Steps that make the record of a message again."""
    exists_before: ClassVar[bool] = True
    """Whether records can be written before the pipeline is published."""

    @abstractmethod
    def write(self, records: Sequence[Record]) -> None: ...


class Outlet(End):
    """A system that a pipeline delivers to."""

    output: ClassVar[dict[str, Any]] = {}
    """Further fields of the pipeline's output."""

    @abstractmethod
    def read(self) -> list[Record]:
        """Everything that has arrived so far."""


def bodies_of(records: Sequence[Record]) -> list[bytes]:
    return [exact.dumps(record) for record in records]
