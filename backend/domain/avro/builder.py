"""The types of a schema."""

from typing import Any

from backend.domain.avro import scalars
from backend.domain.avro.complex_types import Field, Record, Repeated
from backend.domain.avro.moments import MOMENTS
from backend.domain.avro.plain_types import DECIMAL_BYTES, LongDecimal, PlainType
from backend.domain.avro.scalars import UUID, Scalar
from backend.domain.avro.types import Type
from backend.domain.avro.unions import Union

_LOGICAL = {**MOMENTS, ("string", "uuid"): UUID}
"""Logical types that the library reads as such, by the names of the type and of the logical type."""
_NAME_CHARACTERS = 255
"""Limit of a name, which stands once in a schema, but in JSON once for each value."""


def types_of(schema: Any) -> Type:
    """The type of a schema that the library has parsed: names are full names, and are defined before they are used.
    Raises ValueError."""
    root = _Builder().type(schema)
    for part in root.all():
        part.free()
        if isinstance(part, Record):
            part.check_defaults()
    return root


class _Builder:
    def __init__(self) -> None:
        self._named: dict[str, Type] = {kind: PlainType(kind, kind, one) for kind, one in scalars.PRIMITIVES.items()}

    def type(self, schema: Any) -> Type:
        match schema:
            case str():
                return self._named[schema]
            case list():
                return self._union(schema)
            case {"type": "record" | "error", "name": name, "fields": fields}:
                record = self._named[_checked_name(name)] = Record(name)
                record.fields = [
                    Field(_checked_name(field["name"]), field, self.type(field["type"])) for field in fields
                ]
                record.parts = [field.type for field in record.fields]
                return record
            case {"type": "array", "items": item} | {"type": "map", "values": item}:
                repeated = Repeated(schema["type"])
                repeated.parts = [self.type(item)]
                return repeated
            case {"type": "enum", "name": name, "symbols": symbols}:
                self._named[name] = PlainType(_checked_name(name), "enum", scalars.enumeration(frozenset(symbols)))
                return self._named[name]
            case {"type": "fixed", "name": name, "size": int(size)} if size >= 0 and not isinstance(size, bool):
                if schema.get("logicalType") == "decimal" and size > DECIMAL_BYTES:
                    raise ValueError(f"the decimal {name} has more than {DECIMAL_BYTES:,} bytes")
                fixed = _decimal(schema, size) or scalars.binary(size)
                self._named[name] = PlainType(_checked_name(name), "fixed", fixed, size)
                return self._named[name]
            case {"type": "bytes", "logicalType": "decimal"}:
                return LongDecimal("bytes", "bytes", _decimal(schema) or scalars.PRIMITIVES["bytes"])
            case {"type": str(kind), "logicalType": str(logical)} if (kind, logical) in _LOGICAL:
                return PlainType(kind, kind, _LOGICAL[kind, logical])
            case {"type": str(kind)} if kind in scalars.PRIMITIVES:
                return self._named[kind]
        raise ValueError(f"the schema has {schema!r:.100}, which is no type")

    def _union(self, schema: list[Any]) -> Type:
        union = Union("union")
        union.parts = [self.type(branch) for branch in schema]
        names = [branch.name for branch in union.parts]
        if "union" in names:
            raise ValueError("a union immediately contains another one")
        if len(set(names)) < len(names):
            raise ValueError(f"a union has several branches of one type: {', '.join(names)}")
        return union


def _checked_name(name: Any) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= _NAME_CHARACTERS:
        raise ValueError(f"a name is not a text of 1 to {_NAME_CHARACTERS} characters")
    return name


def _decimal(schema: dict[str, Any], size: int | None = None) -> Scalar | None:
    """None for one that is no decimal, or whose precision the library does not know and so reads as bytes."""
    if schema.get("logicalType") != "decimal":
        return None
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    return scalars.decimal(precision, scale, size) if isinstance(precision, int) and isinstance(scale, int) else None
