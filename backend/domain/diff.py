"""The differences between two documents: configurations, or messages."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from backend.domain.paths import MISSING


@dataclass(frozen=True, slots=True)
class Change:
    """One difference at a dotted path; None for a side without a value there."""

    path: str
    before: Any
    after: Any


def changes(before: Any, after: Any) -> list[Change]:
    """The differences of two configurations, in which null is as good as nothing."""
    return [
        Change(path, left, right)
        for path, *sides in differences(before, after)
        for left, right in [[None if side is MISSING else side for side in sides]]
        if (left, right) != (None, None)
    ]


def differences(before: Any, after: Any) -> list[tuple[str, Any, Any]]:
    """The dotted paths of the differences, in the order of the documents, with the values there, which may be MISSING.
    List items are matched by their ``name`` if each has one of its own."""
    try:
        return list(_differences(before, after, ()))
    except RecursionError:  # nested too deeply to be followed
        return [("", before, after)]


def _differences(before: Any, after: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any, Any]]:
    left, right = _children(before, after)
    if left is None or right is None:
        if not _is_same(before, after):
            yield ".".join(path), before, after
        return
    for name in [*left, *(name for name in right if name not in left)]:
        yield from _differences(left.get(name, MISSING), right.get(name, MISSING), (*path, name))


def _is_same(before: Any, after: Any) -> bool:
    """Whether two values are the same in JSON, where 1.0 is 1, and true is not."""
    return isinstance(before, bool) == isinstance(after, bool) and bool(before == after)


def _children(before: Any, after: Any) -> tuple[dict[str, Any], dict[str, Any]] | tuple[None, None]:
    """What is to be compared with what, by name; None unless both are objects, or both are lists."""
    if isinstance(before, dict) and isinstance(after, dict):
        return before, after
    if isinstance(before, list) and isinstance(after, list):
        by_name = _named(before) and _named(after)
        return _by(before, by_name=by_name), _by(after, by_name=by_name)
    return None, None


def _named(items: list[Any]) -> bool:
    named = all(isinstance(item, dict) and "name" in item for item in items)
    return named and len({str(item["name"]) for item in items}) == len(items)


def _by(items: list[Any], *, by_name: bool) -> dict[str, Any]:
    return {str(item["name"]) if by_name else str(index): item for index, item in enumerate(items)}
