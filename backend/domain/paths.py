"""Field paths in a JSON document, written as JSON Pointer (``/a/0/b``) or dotted (``a.0.b``)."""

import itertools
from functools import lru_cache
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()


class PathError(ValueError):
    """The path is malformed, or does not fit the document."""


@lru_cache(maxsize=10_000)
def parse_path(text: str) -> tuple[str, ...]:
    """Splits a path into steps. Raises PathError if a step of a dotted path is empty."""
    if text.startswith("/"):
        return tuple(step.replace("~1", "/").replace("~0", "~") for step in text[1:].split("/"))
    steps = tuple(text.split("."))
    if not all(steps):
        raise PathError(f"{text!r} is not a field path. Write it like order.id or /order/id.")
    return steps


def _valid_path(text: str) -> str:
    parse_path(text)
    return text


FieldPath = Annotated[
    str,
    Field(min_length=1, max_length=500, examples=["order.id"], json_schema_extra={"format": "field-path"}),
    AfterValidator(_valid_path),
]


def get(document: Any, steps: tuple[str, ...]) -> Any:
    """The value at the path, or MISSING."""
    for step in steps:
        if isinstance(document, dict):
            document = document.get(step, MISSING)
        elif isinstance(document, list) and is_index(step) and int(step) < len(document):
            document = document[int(step)]
        else:
            return MISSING
    return document


def put(document: Any, steps: tuple[str, ...], value: Any) -> None:
    """Sets the value in place and creates missing parent objects. Raises PathError if the path does not fit."""
    for step, following in itertools.pairwise(steps):
        child = get(document, (step,))
        if child is MISSING:
            child = {}
            _assign(document, step, child)
        elif not isinstance(child, dict | list):
            raise PathError(f"{step!r} is not an object, so {following!r} cannot be set in it.")
        document = child
    _assign(document, steps[-1], value)


def remove(document: Any, steps: tuple[str, ...]) -> Any:
    """Removes the value in place and returns it, or MISSING."""
    parent = get(document, steps[:-1])
    last = steps[-1]
    if isinstance(parent, dict):
        return parent.pop(last, MISSING)
    if isinstance(parent, list) and is_index(last) and int(last) < len(parent):
        return parent.pop(int(last))
    return MISSING


def is_index(step: str) -> bool:
    return step.isascii() and step.isdigit() and len(step) < 10


def _assign(container: Any, step: str, value: Any) -> None:
    if isinstance(container, dict):
        container[step] = value
    elif isinstance(container, list) and is_index(step) and int(step) < len(container):
        container[int(step)] = value
    elif isinstance(container, list) and (step == "-" or (is_index(step) and int(step) == len(container))):
        container.append(value)
    else:
        raise PathError(f"{step!r} cannot be set here: the value around it is {_kind(container)}.")


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return "not an object"
