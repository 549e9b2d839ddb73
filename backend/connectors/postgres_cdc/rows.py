"""Rows and changes of a table as messages."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from backend.connectors.parts.pgoutput import UNCHANGED, Delete, Insert, Unchanged, Update, Values
from backend.connectors.parts.postgresql_values import Convert
from backend.domain import json

Row = dict[str, bytes | Unchanged | None]
"""A row's values by their columns, as the server writes them."""


class Column(NamedTuple):
    name: str
    convert: Convert
    identity: bool = False
    """Whether it belongs to the replica identity, by which changed and deleted rows are named."""


class Change(NamedTuple):
    """What became of one row."""

    op: str
    before: Row | None
    after: Row | None
    key: bytes | None


@dataclass(frozen=True)
class TableShape:
    """A table's columns at some time."""

    schema: str
    table: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    """The columns of its primary key."""

    def row(self, values: Values) -> Row:
        return {column.name: value for column, value in zip(self.columns, values, strict=True)}

    def changes(self, change: Insert | Update | Delete) -> list[Change]:
        """One, or two for an update of the primary key: the row leaves one key and comes to the other, and receivers
        keep the order of each."""
        match change:
            case Insert():
                return [self._change("insert", None, self.row(change.after))]
            case Delete():
                return [self._change("delete", self._identified(change.key, change.before), None)]
        before = self._identified(change.key, change.before)
        after = self.row(change.after)
        if change.before is not None:
            assert before is not None
            after = {name: before[name] if value is UNCHANGED else value for name, value in after.items()}
        if before is not None and self._moved(before, after):
            return [self._change("delete", before, None), self._change("insert", None, after)]
        return [self._change("update", before, after)]

    def snapshot(self, values: Sequence[str | None]) -> Change:
        row = self.row([None if value is None else value.encode() for value in values])
        return self._change("snapshot", None, row)

    def body(self, change: Change, **origin: Any) -> bytes:
        """The message; ``origin`` says where the change is in the log."""
        unchanged = [name for name, value in (change.after or {}).items() if value is UNCHANGED]
        document = {
            "op": change.op,
            "schema": self.schema,
            "table": self.table,
            "before": self._converted(change.before),
            "after": self._converted(change.after),
            **({"unchanged": unchanged} if unchanged else {}),
            **origin,
        }
        return json.dumps(document)

    def _change(self, op: str, before: Row | None, after: Row | None) -> Change:
        return Change(op, before, after, self._key(after if after is not None else before or {}))

    def _identified(self, key: Values | None, before: Values | None) -> Row | None:
        """The former row, or the part of it by which it is identified."""
        if key is None:
            return None if before is None else self.row(before)
        named = {column.name for column in self.columns if column.identity}
        return {name: value for name, value in self.row(key).items() if name in named}

    def _moved(self, before: Row, after: Row) -> bool:
        return bool(self.key) and all(name in before for name in self.key) and self._key(before) != self._key(after)

    def _key(self, row: Row) -> bytes | None:
        values = [row.get(name) for name in self.key]
        texts = [value for value in values if isinstance(value, bytes)]
        if not texts or len(texts) < len(values):
            return None
        return texts[0] if len(texts) == 1 else json.dumps([text.decode(errors="replace") for text in texts])

    def _converted(self, row: Row | None) -> dict[str, Any] | None:
        if row is None:
            return None
        converts = {column.name: column.convert for column in self.columns}
        return {
            name: converts[name](value) if isinstance(value, bytes) else None
            for name, value in row.items()
            if value is not UNCHANGED
        }
