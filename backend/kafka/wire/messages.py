"""The message definitions, read from messages.json, which ``make kafka-messages`` generates."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

_NUMBERS = {"int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q", "float64": "d"}
FIXED = _NUMBERS | {"bool": "?", "uuid": "16s"}
"""Types of a fixed size, with their format characters in the struct module."""


@dataclass(frozen=True)
class Versions:
    """A range of versions, both ends included."""

    first: int
    last: int

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last


NONE = Versions(0, -1)


def _versions(bounds: list[int] | None) -> Versions:
    return Versions(*bounds) if bounds else NONE


@dataclass(frozen=True, eq=False)  # equal and hashed by identity: they are keys of caches
class Field:
    """One field of a message. ``kind`` is its type, or the type of its elements if it is an array."""

    name: str
    kind: str
    is_array: bool
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int | None
    default: Any
    fields: tuple["Field", ...]

    @classmethod
    def of(cls, definition: Mapping[str, Any]) -> "Field":
        kind = definition["type"]
        is_array = kind.startswith("[]")
        kind = kind.removeprefix("[]")
        return cls(
            name=definition["name"],
            kind=kind,
            is_array=is_array,
            versions=_versions(definition["versions"]),
            nullable=_versions(definition.get("nullable")),
            tagged=_versions(definition.get("tagged")),
            tag=definition.get("tag"),
            default=_default(kind, is_array, definition),
            fields=tuple(map(cls.of, definition.get("fields", ()))),
        )

    @cached_property
    def has_records(self) -> bool:
        """Whether the field holds records, which are forwarded without being copied."""
        return self.kind == "records" or any(field.has_records for field in self.fields)


def _default(kind: str, is_array: bool, definition: Mapping[str, Any]) -> Any:
    """The default value. None stands for null, and for structs and arrays, of which each message gets its own."""
    text = definition.get("default")
    if is_array or "fields" in definition or text == "null" or kind == "records":
        return None
    if kind == "bool":
        return text in (True, "true")
    if kind == "uuid":
        return bytes(16)
    if kind == "bytes":
        return b""
    if kind == "string":
        return text or ""
    return float(text or 0) if kind == "float64" else int(str(text or 0), 0)


@dataclass(frozen=True, eq=False)
class Message:
    """The definition of a request's or a response's body."""

    key: int
    name: str
    versions: Versions
    flexible: Versions
    fields: tuple[Field, ...]


def _load() -> tuple[dict[int, Message], dict[int, Message]]:
    definitions = json.loads((Path(__file__).parent / "messages.json").read_text())
    requests: dict[int, Message] = {}
    responses: dict[int, Message] = {}
    for definition in definitions:
        message = Message(
            key=definition["key"],
            name=definition["name"],
            versions=_versions(definition["versions"]),
            flexible=_versions(definition["flexible"]),
            fields=tuple(map(Field.of, definition["fields"])),
        )
        (requests if message.name.endswith("Request") else responses)[message.key] = message
    return requests, responses


REQUESTS, RESPONSES = _load()
"""The definitions by API key."""
