"""How values are compared, wherever a configuration compares them.

Values of different kinds are neither equal nor ordered: true is not 1. Numbers are compared exactly, whatever their
size and digits; lists and objects are equal if all in them is.
"""

from decimal import Decimal
from typing import Any

from backend.domain.numbers import as_written

SCALARS = frozenset({"boolean", "text", "number"})


def kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "text"
    if isinstance(value, int | float | Decimal):
        return "number"
    return "null" if value is None else "list" if isinstance(value, list) else "object"


def exact(value: Any) -> Any:
    """With each float as the decimal that was written, since messages are read that way and 1.1 must equal 1.1."""
    if isinstance(value, float):
        return as_written(value)
    if isinstance(value, list):
        return [exact(element) for element in value]
    return {name: exact(element) for name, element in value.items()} if isinstance(value, dict) else value


def are_equal(one: Any, other: Any) -> bool:
    """Of values as messages have them, or made ``exact``."""
    kind = kind_of(one)
    if kind != kind_of(other):
        return False
    if kind == "list":
        return len(one) == len(other) and all(map(are_equal, one, other))
    if kind == "object":
        return one.keys() == other.keys() and all(are_equal(value, other[name]) for name, value in one.items())
    return bool(one == other)


def are_ordered(one: Any, other: Any) -> bool:
    """Whether one of the two is less than the other or they are equal: both are numbers, or both are texts."""
    kind = kind_of(one)
    return kind in {"number", "text"} and kind == kind_of(other)
