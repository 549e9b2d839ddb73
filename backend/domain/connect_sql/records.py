"""Reads a stream's or table's records in Python, as plans.py lets Spark read them."""

import base64
import binascii
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from backend.domain import json
from backend.domain.connect_sql import expressions as e
from backend.domain.connect_sql import types as t
from backend.domain.connect_sql.evaluation import days, fitted, milliseconds
from backend.domain.connect_sql.sources import Source

_LARGEST_EXACT = 2**53 - 1
"""Whole numbers beyond are rounded by programs that know only floating-point numbers."""
_BOUND = 8
"""Bytes of a window's bound at the end of a key."""


class UnreadableError(ValueError):
    """A record is not what its stream or table declares."""


@dataclass(frozen=True)
class Record:
    """What Kafka has; ``timestamp`` is in milliseconds since 1970."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    partition: int
    offset: int


class RecordReader:
    """``avro`` gives a value in Avro as JSON."""

    def __init__(self, source: Source, avro: Callable[[bytes], str | None]) -> None:
        self._source = source
        self._json: Callable[[bytes], bytes | str | None] = avro if source.value_format == "AVRO" else bytes

    def key(self, raw: bytes | None) -> dict[str, Any]:
        """The key columns and the window's bounds; NULL where the key is not what is declared."""
        source = self._source
        bounds: dict[str, Any] = {}
        if source.window is not None:
            size = 2 * _BOUND if source.window == "SESSION" else _BOUND
            bounds = dict.fromkeys(("WINDOWSTART", "WINDOWEND"))
            if raw is not None and len(raw) >= size:
                start = int.from_bytes(raw[-_BOUND:], "big", signed=True)
                session_end = int.from_bytes(raw[-2 * _BOUND : -_BOUND], "big", signed=True)
                end = session_end if source.window == "SESSION" else start + (source.window_size or 0)
                bounds = {"WINDOWSTART": start, "WINDOWEND": end}
                raw = raw[:-size]
        try:
            return self._columns_of_key(raw) | bounds
        except ValueError:
            return {column.name: None for column in source.keys} | bounds

    def row(self, record: Record) -> dict[str, Any]:
        """All columns, with those of every row. The record has a value. Raises UnreadableError."""
        assert record.value is not None
        try:
            document = json.loads(self._json(record.value) or b"null")
            if not isinstance(document, dict):
                raise UnreadableError
            row = {one.name: from_stored(document.get(one.name), one.type) for one in self._source.values}
        except (ValueError, ArithmeticError):
            raise UnreadableError from None
        row |= self.key(record.key)
        time = record.timestamp
        if self._source.timestamp is not None:
            time = row[self._source.timestamp]
            time = round(time.timestamp() * 1000) if isinstance(time, datetime) else time
        return row | {"ROWTIME": time, "ROWPARTITION": record.partition, "ROWOFFSET": record.offset}

    def _columns_of_key(self, raw: bytes | None) -> dict[str, Any]:
        keys = self._source.keys
        if raw is None:
            return {column.name: None for column in keys}
        if self._source.key_format == "KAFKA":
            return {column.name: _kafka_key(raw, column.type) for column in keys}
        document = json.loads(raw)
        if len(keys) == 1 and not isinstance(document, dict):
            return {keys[0].name: from_stored(document, keys[0].type)}
        if isinstance(document, list):  # of texts, by inputs that read tables
            texts = dict(zip((column.name for column in keys), document, strict=True))
            document = {column.name: _of_text(texts[column.name], column.type) for column in keys}
        return {column.name: from_stored(document.get(column.name), column.type) for column in keys}


def _of_text(text: str, type: e.Type) -> Any:
    return text if type == t.VARCHAR else json.loads(text)


def _kafka_key(raw: bytes, type: e.Type) -> Any:
    if type == t.VARCHAR:
        return raw.decode(errors="replace")
    size = 4 if type == t.INTEGER else 8
    return int.from_bytes(raw, "big", signed=True) if len(raw) == size else None


def from_stored(value: Any, type: e.Type) -> Any:
    """A value of JSON as a value of the column. Raises UnreadableError and OverflowError."""
    if value is None:
        return None
    match type:
        case e.ArrayType(element=element) if isinstance(value, list):
            return [from_stored(one, element) for one in value]
        case e.MapType(value=of) if isinstance(value, dict):
            return {key: from_stored(one, of) for key, one in value.items()}
        case e.StructType(fields=fields) if isinstance(value, dict):
            return {name: from_stored(value.get(name), of) for name, of in fields}
        case e.DecimalType() if _is_number(value):
            return fitted(value, type)
    return _primitive_from_stored(value, type)


def _primitive_from_stored(value: Any, type: e.Type) -> Any:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    match type:
        case t.BOOLEAN if isinstance(value, bool):
            return value
        case t.INTEGER | t.BIGINT if is_whole and fitted(value, type) == value:
            return value
        case t.DOUBLE if _is_number(value):
            return float(value)
        case t.TIMESTAMP if is_whole:
            return milliseconds(value)
        case t.DATE if is_whole:
            return days(value)
        case t.BYTES if isinstance(value, str):
            try:
                return base64.b64decode(value, validate=True)
            except binascii.Error:
                raise UnreadableError from None
        case e.PrimitiveType(name="VARCHAR" | "TIME"):
            return json.text(value)
    raise UnreadableError


def _is_number(value: Any) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def shown(value: Any) -> Any:
    """The value in JSON as people read it: times in ISO 8601, bytes in Base64, and as texts all numbers that programs
    might round."""
    match value:
        case dict():
            return {key: shown(one) for key, one in value.items()}
        case list():
            return [shown(one) for one in value]
        case datetime():
            return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal():
            return f"{value:f}"
        case int() if abs(value) > _LARGEST_EXACT:
            return str(value)
        case float() if not math.isfinite(value):
            return str(value)
    return value
