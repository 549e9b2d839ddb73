"""The differences between two configurations."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Change:
    """One difference at a dotted path; None for a side without a value there."""

    path: str
    before: Any
    after: Any


def changes(before: Any, after: Any) -> list[Change]:
    """The differences, in the order of the documents. List items are matched by their ``name`` if all have one."""
    return list(_changes(before, after, ()))


def _changes(before: Any, after: Any, path: tuple[str, ...]) -> Iterator[Change]:
    if before == after:
        return
    left, right = _children(before), _children(after)
    if left is None or right is None or type(before) is not type(after):
        yield Change(".".join(path), before, after)
        return
    for name in [*left, *(name for name in right if name not in left)]:
        yield from _changes(left.get(name), right.get(name), (*path, name))


def _children(value: Any) -> dict[str, Any] | None:
    if isinstance(value, dict):
        return value
    if isinstance(value, list):
        named = all(isinstance(item, dict) and "name" in item for item in value)
        return {str(item["name"]) if named else str(index): item for index, item in enumerate(value)}
    return None
