"""Decodes what PostgreSQL's output plugin pgoutput writes: version 1 of the protocol, with values as text.

PostgreSQL's manual, "Frontend/Backend Protocol", describes the messages in "Logical Replication Message Formats".
"""

import struct
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_KEY_FLAG = 1


class ProtocolError(Exception):
    """The server sent something that is no message of this protocol."""


class Unchanged:
    """Stands for a large value that an update did not change and the server therefore does not send (TOAST)."""


UNCHANGED = Unchanged()

Values = Sequence[bytes | Unchanged | None]
"""A row's values in the order of the table's columns; None is NULL."""


class Begin(NamedTuple):
    """``lsn`` is that of the transaction's commit."""

    lsn: int
    at: datetime
    xid: int


class Commit(NamedTuple):
    """``end`` is where the transaction ends in the log."""

    end: int


class RelationColumn(NamedTuple):
    name: str
    type: int
    key: bool
    """Whether it belongs to the replica identity."""


class Relation(NamedTuple):
    """A table as it is for the changes that follow; sent before the first of them, and after a change of the table."""

    oid: int
    schema: str
    table: str
    columns: tuple[RelationColumn, ...]


class Insert(NamedTuple):
    relation: int
    after: Values


class Update(NamedTuple):
    """``key`` or ``before`` are given as the table's replica identity says."""

    relation: int
    key: Values | None
    before: Values | None
    after: Values


class Delete(NamedTuple):
    relation: int
    key: Values | None
    before: Values | None


class Truncate(NamedTuple):
    relations: tuple[int, ...]


Message = Begin | Commit | Relation | Insert | Update | Delete | Truncate


def decode(data: bytes | memoryview) -> Message | None:
    """The message, or None for one of a kind that is not needed. Raises ProtocolError."""
    try:
        return _Reader(bytes(data)).message()
    except (struct.error, IndexError, ValueError) as error:
        raise ProtocolError(f"A replication message cannot be decoded: {error}.") from None


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def message(self) -> Message | None:
        match self._byte():
            case b"B":
                lsn, microseconds, xid = self._take("!QqI")
                return Begin(lsn, _EPOCH + timedelta(microseconds=microseconds), xid)
            case b"C":
                _, _, end, _ = self._take("!BQQq")
                return Commit(end)
            case b"R":
                return self._relation()
            case b"I":
                (relation,) = self._take("!I")
                self._expect(b"N")
                return Insert(relation, self._values())
            case b"U":
                return self._update()
            case b"D":
                (relation,) = self._take("!I")
                kind = self._byte()
                return Delete(relation, *self._identity(kind))
            case b"T":
                count, _ = self._take("!IB")
                return Truncate(self._take(f"!{count}I"))
        return None

    def _relation(self) -> Relation:
        (oid,) = self._take("!I")
        schema, table = self._string() or "pg_catalog", self._string()
        _, count = self._take("!BH")
        columns = []
        for _ in range(count):
            (flags,) = self._take("!B")
            name = self._string()
            type, _ = self._take("!Ii")
            columns.append(RelationColumn(name, type, bool(flags & _KEY_FLAG)))
        return Relation(oid, schema, table, tuple(columns))

    def _update(self) -> Update:
        (relation,) = self._take("!I")
        kind = self._byte()
        key, before = None, None
        if kind != b"N":
            key, before = self._identity(kind)
            self._expect(b"N")
        return Update(relation, key, before, self._values())

    def _identity(self, kind: bytes) -> tuple[Values | None, Values | None]:
        if kind not in (b"K", b"O"):
            raise ValueError(f"{kind!r} is no kind of row")
        values = self._values()
        return (values, None) if kind == b"K" else (None, values)

    def _values(self) -> Values:
        (count,) = self._take("!H")
        return [self._value() for _ in range(count)]

    def _value(self) -> bytes | Unchanged | None:
        match self._byte():
            case b"n":
                return None
            case b"u":
                return UNCHANGED
            case b"t":
                (length,) = self._take("!I")
                self._at += length
                return self._data[self._at - length : self._at]
            case kind:
                raise ValueError(f"{kind!r} is no kind of value")

    def _byte(self) -> bytes:
        self._at += 1
        return self._data[self._at - 1 : self._at]

    def _expect(self, kind: bytes) -> None:
        if (given := self._byte()) != kind:
            raise ValueError(f"{given!r} in place of {kind!r}")

    def _string(self) -> str:
        end = self._data.index(b"\0", self._at)
        text = self._data[self._at : end].decode()
        self._at = end + 1
        return text

    def _take(self, format: str) -> tuple[int, ...]:
        values = struct.unpack_from(format, self._data, self._at)
        self._at += struct.calcsize(format)
        return values
