"""The message definitions, read from messages.json (which ``make kafka-messages`` writes)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

_NUMBERS = {"int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q", "float64": "d"}
FIXED = _NUMBERS | {"bool": "?", "uuid": "16s"}
"""Types of a fixed size, and how the struct module calls them."""


@dataclass(frozen=True)
class Versions:
    """A range, both ends in it."""

    first: int
    last: int

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last


NONE = Versions(0, -1)


def _versions(found: list[int] | None) -> Versions:
    return Versions(*found) if found else NONE


@dataclass(frozen=True, eq=False)  # equal and hashed by identity: they are keys of caches
class Field:
    """One field. ``kind`` is the type of its elements if it is an array."""

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
    def of(cls, found: Mapping[str, Any]) -> "Field":
        kind = found["type"]
        is_array = kind.startswith("[]")
        kind = kind.removeprefix("[]")
        return cls(
            name=found["name"],
            kind=kind,
            is_array=is_array,
            versions=_versions(found["versions"]),
            nullable=_versions(found.get("nullable")),
            tagged=_versions(found.get("tagged")),
            tag=found.get("tag"),
            default=_default(kind, is_array, found),
            fields=tuple(map(cls.of, found.get("fields", ()))),
        )

    @cached_property
    def has_records(self) -> bool:
        """Whether records are in it, which are passed on where they are."""
        return self.kind == "records" or any(field.has_records for field in self.fields)


def _default(kind: str, is_array: bool, found: Mapping[str, Any]) -> Any:
    """None stands for null, and for structs and arrays, which are made anew each time."""
    text = found.get("default")
    if is_array or "fields" in found or text == "null" or kind == "records":
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
    """A request's or a response's body."""

    key: int
    name: str
    versions: Versions
    flexible: Versions
    fields: tuple[Field, ...]


def _load() -> tuple[dict[int, Message], dict[int, Message]]:
    found = json.loads((Path(__file__).parent / "messages.json").read_text())
    requests: dict[int, Message] = {}
    responses: dict[int, Message] = {}
    for item in found:
        message = Message(
            key=item["key"],
            name=item["name"],
            versions=_versions(item["versions"]),
            flexible=_versions(item["flexible"]),
            fields=tuple(map(Field.of, item["fields"])),
        )
        (requests if message.name.endswith("Request") else responses)[message.key] = message
    return requests, responses


REQUESTS, RESPONSES = _load()
"""By API key."""
