"""Suggests field paths from sample messages, for people who edit a pipeline."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from backend.domain import json

_MAX_FIELDS = 500
_MAX_DEPTH = 20
_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Field:
    """A field's path and type, with one of its values as JSON."""

    path: str
    type: str
    example: str


def fields_of(bodies: Iterable[bytes]) -> list[Field]:
    """The fields of those bodies that are JSON, in order of appearance. Only the first item of a list is examined."""
    fields: dict[str, Field] = {}
    for body in bodies:
        try:
            document = json.loads(body)
        except json.InvalidJsonError:
            continue
        for steps, value in _walk(document, ()):
            if len(fields) == _MAX_FIELDS:
                return list(fields.values())
            path = _written(steps)
            if path not in fields:
                fields[path] = Field(path, _type(value), json.dumps(value).decode()[:_SHOWN])
    return list(fields.values())


def _walk(value: Any, steps: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if steps:
        yield steps, value
    if len(steps) == _MAX_DEPTH:
        return
    if isinstance(value, dict):
        for name, member in value.items():
            yield from _walk(member, (*steps, name))
    elif isinstance(value, list) and value:
        yield from _walk(value[0], (*steps, "0"))


def _written(steps: tuple[str, ...]) -> str:
    """The path in dotted form, or as a JSON Pointer if a name contains a dot."""
    if all(step and "." not in step for step in steps) and not steps[0].startswith("/"):
        return ".".join(steps)
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)


def _type(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case dict():
            return "object"
        case list():
            return "list"
    return "number"
