"""Rows in Avro: the columns that a schema has, and how its values are read."""

import base64
import io
import math
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from backend.domain import json
from backend.domain.avro.schema import AvroSchema, SchemaError
from backend.domain.connect_sql import expressions as e
from backend.domain.connect_sql import types as t
from backend.domain.connect_sql.errors import QueryError

_PRIMITIVE: dict[str, e.Type] = {
    "string": t.VARCHAR,
    "enum": t.VARCHAR,
    "int": t.INTEGER,
    "long": t.BIGINT,
    "float": t.DOUBLE,
    "double": t.DOUBLE,
    "boolean": t.BOOLEAN,
    "bytes": t.BYTES,
    "fixed": t.BYTES,
}
_LOGICAL: dict[str, e.Type] = {
    "date": t.DATE,
    "timestamp-millis": t.TIMESTAMP,
    "timestamp-micros": t.TIMESTAMP,
    "local-timestamp-millis": t.TIMESTAMP,
    "local-timestamp-micros": t.TIMESTAMP,
    "time-millis": t.VARCHAR,
    "time-micros": t.VARCHAR,
    "uuid": t.VARCHAR,
}
_EPOCH = date(1970, 1, 1)
_DEEPEST = 20


def columns_of(schema: dict[str, Any]) -> tuple[tuple[str, e.Type], ...]:
    """The fields of a record's schema. Raises QueryError."""
    return _Reader().record(schema, 0).fields


class _Reader:
    def __init__(self) -> None:
        self._named: dict[str, Any] = {}

    def type(self, schema: Any, depth: int) -> e.Type:
        if depth > _DEEPEST:
            raise QueryError("The Avro schema is nested too deeply, or contains itself.")
        match schema:
            case list():
                others = [one for one in schema if one != "null"]
                if len(others) != 1:
                    raise QueryError("A column cannot be of several types: the Avro schema has a union.")
                return self.type(others[0], depth)
            case str():
                return _PRIMITIVE.get(schema) or self.type(self._named.get(schema), depth + 1)
            case {"logicalType": "decimal", "precision": int(precision)}:
                return e.DecimalType(precision, schema.get("scale", 0))
            case {"logicalType": str(logical)} if logical in _LOGICAL:
                return _LOGICAL[logical]
            case {"type": "array", "items": items}:
                return e.ArrayType(self.type(items, depth + 1))
            case {"type": "map", "values": values}:
                return e.MapType(t.VARCHAR, self.type(values, depth + 1))
            case {"type": "record"}:
                return self.record(schema, depth + 1)
            case {"type": inner}:
                if "name" in schema:
                    self._named[schema["name"]] = schema
                return self.type(inner, depth + 1)
        raise QueryError("The Avro schema has a type that no column can have.")

    def record(self, schema: dict[str, Any], depth: int) -> e.StructType:
        self._named[schema["name"]] = schema
        return e.StructType(tuple((one["name"], self.type(one["type"], depth)) for one in schema["fields"]))


def to_json(schema_of: Callable[[int], AvroSchema]) -> Callable[[bytes | None], str | None]:
    """A function that gives records in Avro, with the header of Confluent's serializers, as JSON. ``schema_of`` gives
    the schema with an id. What cannot be read becomes a text that is no JSON."""

    def read(value: bytes | None) -> str | None:
        if value is None:
            return None
        if len(value) < 5 or value[0] != 0:
            return "no Avro"
        try:
            schema = schema_of(int.from_bytes(value[1:5], "big"))
        except SchemaError:
            return "no Avro"
        try:
            document = schema.read_next(io.BytesIO(value[5:]))
        except ValueError:
            return "no Avro"
        return json.dumps(_plain(document)).decode()

    return read


def _plain(value: Any) -> Any:
    """As columns are stored in JSON."""
    match value:
        case dict():
            return {name: _plain(one) for name, one in value.items()}
        case list():
            return [_plain(one) for one in value]
        case bytes():
            return base64.b64encode(value).decode()
        case datetime():
            return round(value.timestamp() * 1000)
        case date():
            return (value - _EPOCH).days
        case time() | UUID():
            return str(value)
        case Decimal() | float() if not math.isfinite(value):
            return None
    return value
