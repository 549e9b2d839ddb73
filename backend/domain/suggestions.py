"""The fields that messages have, for people who write paths."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from backend.domain import json

_MOST_FIELDS = 500
_DEEPEST = 20
_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Field:
    """A field by its path, with one of its values as JSON."""

    path: str
    type: str
    example: str


def fields_of(bodies: Iterable[bytes]) -> list[Field]:
    """The fields of those bodies that are JSON, in the order in which they are met. Of a list, its first item
    stands for all."""
    found: dict[str, Field] = {}
    for body in bodies:
        try:
            document = json.loads(body)
        except json.InvalidJsonError:
            continue
        for steps, value in _walk(document, ()):
            if len(found) == _MOST_FIELDS:
                return list(found.values())
            path = _written(steps)
            if path not in found:
                found[path] = Field(path, _type(value), json.dumps(value).decode()[:_SHOWN])
    return list(found.values())


def _walk(value: Any, steps: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if steps:
        yield steps, value
    if len(steps) == _DEEPEST:
        return
    if isinstance(value, dict):
        for name, member in value.items():
            yield from _walk(member, (*steps, name))
    elif isinstance(value, list) and value:
        yield from _walk(value[0], (*steps, "0"))


def _written(steps: tuple[str, ...]) -> str:
    """Dotted, or as a JSON Pointer where a name would be taken apart."""
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
