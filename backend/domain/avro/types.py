"""The types of a schema: what their data can be at most, how data are passed over, how they become JSON and are made of
it again."""

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from decimal import Decimal
from functools import cached_property
from itertools import repeat
from typing import Any

from backend.domain import json, limits
from backend.domain.avro import scalars
from backend.domain.avro.scalars import MisfitError, Scalar

DECIMAL_BYTES = 4096
"""Limit of a decimal's integer, some 9,800 digits: converting one takes time by the square of its length."""
_NAME_CHARACTERS = 255
"""Limit of a name, which stands once in a schema, but in JSON once for each value."""
_CHOICES = limits.VALUES
"""Limit of the values that are compared with the branches of unions, about a second of work."""
_WIDTHS = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_LENGTH_FIRST = frozenset({"string", "bytes"})
_NAMED = frozenset({"enum", "fixed"})


class Type(ABC):
    """A type. Types refer to one another as the schema says, also in circles."""

    def __init__(self, name: str) -> None:
        """``name`` tells the branches of a union apart: that of a named type, or the type's."""
        self.name = name
        self.parts: Sequence[Type] = ()
        self._depth: float | None = None

    def all(self) -> "set[Type]":
        """This type and all that it is made of."""
        found, new = {self}, [self]
        while new:
            more = set(new.pop().parts) - found
            found |= more
            new += more
        return found

    def depth(self) -> float:
        """The most records, arrays and maps in one another; infinite for a type that contains itself."""
        if self._depth is None:
            self._depth = math.inf  # what is met again meanwhile contains itself
            self._depth = self._own_depth + max((part.depth() for part in self.parts), default=0)
        return self._depth

    _own_depth = 1

    def free(self) -> float:
        """The most values without a byte of their own that a byte can be followed by. Raises ValueError for a record
        that contains itself always, which no data are."""
        return 0

    def takes_no_bytes(self) -> bool:
        """Whether all its data are empty."""
        return False

    @abstractmethod
    def enter(self, scan: "Scan") -> "Iterator[Type] | None":
        """Passes over a datum, or over its beginning: then it gives the types that follow within it."""

    def fits(self, value: Any, preparation: "Preparation", depth: int) -> bool:
        """Whether the library takes a JSON value for one of this type when it chooses the branch of a union."""
        if isinstance(value, dict | list):
            return preparation.fits(self, value, depth)
        return self.compare(value, preparation, depth)

    @abstractmethod
    def compare(self, value: Any, preparation: "Preparation", depth: int) -> bool:
        """As ``fits``, of which it is what differs between types."""

    @abstractmethod
    def prepared(self, value: Any, preparation: "Preparation", depth: int) -> Any:
        """A JSON value as the library writes it without searching: unions have their branch, defaults are filled in.
        Raises MisfitError, TooLargeError."""

    @abstractmethod
    def is_datum(self, datum: Any) -> bool:
        """Whether a native value in a union may be one of this type; those of named types bear their names."""

    @abstractmethod
    def plain(self, datum: Any, preparation: "Preparation") -> Any:
        """The native value as JSON, of which ``prepared`` makes it again. Raises MisfitError."""


class Scan:
    """Passes over data and counts its values. Nothing in it is recursive."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data = data
        self._at = at
        self._values = 0

    def pass_over(self, root: Type) -> int:
        """The position behind the datum. Raises ValueError, TooLargeError among them."""
        levels = [iter((root,))]
        try:
            while levels:
                part = next(levels[-1], None)
                if part is None:
                    levels.pop()
                    continue
                self.count(1)
                within = part.enter(self)
                if within is not None:
                    limits.check_depth(len(levels))
                    levels.append(within)
        except IndexError:
            raise _wrong("it ends early") from None
        return self._at

    def count(self, values: int) -> None:
        self._values += values
        limits.check_values(self._values)

    def skip(self, size: int) -> None:
        if not 0 <= size <= len(self._data) - self._at:
            raise _wrong("a length is negative or leads beyond its end")
        self._at += size

    def long(self) -> int:
        """The next integer. Section "Binary Encoding": zig-zag, seven bits a byte, the lowest first."""
        byte = self._data[self._at]
        self._at += 1
        number, shift = byte & 0x7F, 7
        while byte & 0x80:
            if shift > 63:
                raise _wrong("an integer has more than ten bytes")
            byte = self._data[self._at]
            self._at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
        return (number >> 1) ^ -(number & 1)


class Preparation:
    """Counts what a document needs while it is written."""

    def __init__(self) -> None:
        self._choices = 0
        self._defaults = 0
        self._fits: dict[tuple[bool, int, int], bool] = {}
        self._kept: list[Any] = []
        self.is_lenient = False
        """Whether also JSON fits that the library does not take as it is, such as the texts of bytes and of times."""

    def keep(self, value: Any) -> Any:
        """The value, which is compared and so has to stay what its id says."""
        self._kept.append(value)
        return value

    def fits(self, type_: Type, value: Any, depth: int) -> bool:
        """Whether a list or object fits. It is compared once with each type: the library does it anew within each
        union around it."""
        limits.check_depth(depth + 1)
        compared = (self.is_lenient, id(type_), id(value))
        if compared not in self._fits:
            self._fits[compared] = type_.compare(value, self, depth)
        return self._fits[compared]

    def count_choices(self, choices: int) -> None:
        self._choices += choices
        if self._choices > _CHOICES:
            raise limits.TooLargeError(f"The message needs more than {_CHOICES:,} choices between branches of unions.")

    def add_default(self, size: int) -> None:
        self._defaults += size
        limits.check_body(self._defaults)

    @property
    def defaults(self) -> int:
        return self._defaults


def _wrong(how: str) -> ValueError:
    return ValueError(f"This is not Avro data of the given schema: {how}.")


class _Scalar(Type):
    """A type without parts."""

    _own_depth = 0

    def __init__(self, name: str, kind: str, scalar: Scalar, width: int | None = None) -> None:
        super().__init__(name)
        self._kind = kind
        self._scalar = scalar
        self._width = _WIDTHS.get(kind) if width is None else width

    def free(self) -> float:
        return 1 if self.takes_no_bytes() else 0

    def takes_no_bytes(self) -> bool:
        return self._width == 0

    def enter(self, scan: Scan) -> None:
        if self._width is not None:
            scan.skip(self._width)
        elif self._kind in _LENGTH_FIRST:
            scan.skip(scan.long())
        else:
            scan.long()

    def fits(self, value: Any, preparation: Preparation, depth: int) -> bool:
        if self._scalar.fits(float(value) if isinstance(value, Decimal) else value):
            return True
        return preparation.is_lenient and self._scalar.takes(value)

    compare = fits

    def prepared(self, value: Any, preparation: Preparation, depth: int) -> Any:
        return self._scalar.native(value)

    def is_datum(self, datum: Any) -> bool:
        if isinstance(datum, tuple):
            return bool(datum[0] == self.name)
        return self._kind not in _NAMED and type(datum) in self._scalar.types

    def plain(self, datum: Any, preparation: Preparation) -> Any:
        return self._scalar.plain(datum)


class LongDecimal(_Scalar):
    """A decimal in bytes. Section "Decimal": its integer is of any length."""

    def enter(self, scan: Scan) -> None:
        size = scan.long()
        if size > DECIMAL_BYTES:
            raise limits.TooLargeError(f"A decimal has more than {DECIMAL_BYTES:,} bytes.")
        scan.skip(size)


class _Union(Type):
    """Section "Unions": the position of the branch, and a datum of it."""

    _own_depth = 0

    def enter(self, scan: Scan) -> Iterator[Type] | None:
        position = scan.long()
        if not 0 <= position < len(self.parts):
            raise _wrong(f"a union has no branch {position}")
        return self.parts[position].enter(scan)

    def compare(self, value: Any, preparation: Preparation, depth: int) -> bool:
        preparation.count_choices(len(self.parts))
        for branch in self.parts:
            if branch.fits(value, preparation, depth):
                return True
        if preparation.is_lenient and isinstance(value, dict) and len(value) == 1:
            [(name, inner)] = value.items()
            for branch in self.parts:
                if branch.name == name and branch.fits(inner, preparation, depth):
                    return True
        return False

    def prepared(self, value: Any, preparation: Preparation, depth: int) -> Any:
        branch = self._branch(value, preparation, depth)
        if branch is None:
            branch, value = self._tagged(value)
        return branch.name, branch.prepared(value, preparation, depth)

    def is_datum(self, datum: Any) -> bool:
        return any(branch.is_datum(datum) for branch in self.parts)

    def plain(self, datum: Any, preparation: Preparation) -> Any:
        """Tagged with the branch's name, as in Avro's own JSON, where it would be taken for a value of another."""
        branch = next(part for part in self.parts if part.is_datum(datum))
        plain = preparation.keep(branch.plain(datum[1] if isinstance(datum, tuple) else datum, preparation))
        if len(self.parts) <= 2 and "null" in {part.name for part in self.parts}:
            return plain
        if _are_one(self._branch(plain, preparation, 0), branch):
            return plain
        tagged = preparation.keep({branch.name: plain})
        if self._branch(tagged, preparation, 0) is not None:
            raise MisfitError(f"JSON cannot tell the branches of the union of {self._names} apart")
        return tagged

    @property
    def _names(self) -> str:
        return f"{', '.join(part.name for part in self.parts):.200}"

    def _tagged(self, value: Any) -> tuple[Type, Any]:
        """The branch that the value names or is meant for, with the value in it. Raises MisfitError."""
        if isinstance(value, dict) and len(value) == 1:
            [(name, inner)] = value.items()
            for branch in self.parts:
                if branch.name == name:
                    return branch, inner
        others = [branch for branch in self.parts if branch.name != "null"]
        if value is not None and len(others) == 1:
            return others[0], value  # its error says more
        raise MisfitError(f"no branch of the union of {self._names} fits {json.text(value):.200}")

    def _branch(self, value: Any, preparation: Preparation, depth: int) -> Type | None:
        """The library's choice, or else the first that can be made of the JSON."""
        found = self._chosen(value, preparation, depth)
        if found is None and not preparation.is_lenient:
            preparation.is_lenient = True
            try:
                found = self._chosen(value, preparation, depth)
            finally:
                preparation.is_lenient = False
        return found

    def _chosen(self, value: Any, preparation: Preparation, depth: int) -> Type | None:
        """The library's choice: the first branch that fits, of records the one with the most of its fields, and double
        rather than float."""
        preparation.count_choices(len(self.parts))
        found: Type | None = None
        most = -1
        for branch in self.parts:
            if found is not None and found.name == "float" and branch.name != "double":
                continue
            if not branch.fits(value, preparation, depth):
                continue
            if isinstance(branch, Record):
                fields = branch.fields_in(value)
                if fields > most:
                    found, most = branch, fields
                continue
            found = branch
            if branch.name != "float":
                break
        return found


class _Repeated(Type):
    """Sections "Arrays" and "Maps": blocks of items, each with its count, which is negative if the block's size
    follows, and a count of zero at the end."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._is_map = name == "map"

    def free(self) -> float:
        return math.inf if not self._is_map and self.parts[0].takes_no_bytes() else 0

    def enter(self, scan: Scan) -> Iterator[Type]:
        [item] = self.parts
        while count := scan.long():
            if count < 0:
                scan.long()
            if not self._is_map and item.takes_no_bytes():
                scan.count(abs(count) * int(item.free()))
                continue
            for _ in repeat(None, abs(count)):
                if self._is_map:
                    scan.skip(scan.long())
                yield item

    def compare(self, value: Any, preparation: Preparation, depth: int) -> bool:
        items = self._items(value)
        if items is None:
            return False
        preparation.count_choices(len(items))
        [item] = self.parts
        for one in items:  # noqa: SIM110 - as above
            if not item.fits(one, preparation, depth + 1):
                return False
        return True

    def _items(self, value: Any) -> Collection[Any] | None:
        if self._is_map:
            return value.values() if isinstance(value, dict) else None
        return value if isinstance(value, list) else None

    def prepared(self, value: Any, preparation: Preparation, depth: int) -> Any:
        limits.check_depth(depth + 1)
        if self._is_map and isinstance(value, dict):
            return dict(self._prepared(value.items(), preparation, depth))
        if not self._is_map and isinstance(value, list):
            return [made for _, made in self._prepared(enumerate(value), preparation, depth)]
        raise MisfitError("it is not an object" if self._is_map else "it is not a list")

    def _prepared(
        self, items: Iterable[tuple[Any, Any]], preparation: Preparation, depth: int
    ) -> Iterator[tuple[Any, Any]]:
        [item] = self.parts
        for step, value in items:
            try:
                yield step, item.prepared(value, preparation, depth + 1)
            except MisfitError as error:
                error.path.insert(0, str(step))
                raise

    def is_datum(self, datum: Any) -> bool:
        return isinstance(datum, dict if self._is_map else list)

    def plain(self, datum: Any, preparation: Preparation) -> Any:
        [item] = self.parts
        if self._is_map:
            return {name: item.plain(one, preparation) for name, one in datum.items()}
        return [item.plain(one, preparation) for one in datum]


class Record(Type):
    """Section "Complex Types": data of the fields, one after the other."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.fields: Sequence[_Field] = ()
        self._free: float | None = None
        self._is_empty: bool | None = None

    def free(self) -> float:
        if self._free is None:
            self._free = math.nan  # what is met again meanwhile contains itself without a choice
            self._free = 1 + sum(part.free() for part in self.parts)
        if math.isnan(self._free):
            raise ValueError(f"the record {self.name} always contains itself")
        return self._free

    def takes_no_bytes(self) -> bool:
        if self._is_empty is None:
            self._is_empty = False  # what contains itself always is refused
            self._is_empty = all(part.takes_no_bytes() for part in self.parts)
        return self._is_empty

    def enter(self, scan: Scan) -> Iterator[Type]:
        return iter(self.parts)

    def compare(self, value: Any, preparation: Preparation, depth: int) -> bool:
        if not isinstance(value, dict) or not value.keys() <= self._names:
            return False
        for field in self.fields:
            preparation.count_choices(1)
            if not field.type.fits(value.get(field.name, field.default), preparation, depth + 1):
                return False
        return True

    @cached_property
    def _names(self) -> set[str]:
        return {field.name for field in self.fields}

    def fields_in(self, value: Any) -> int:
        return sum(field.name in value for field in self.fields)

    def prepared(self, value: Any, preparation: Preparation, depth: int) -> Any:
        if not isinstance(value, dict):
            raise MisfitError("it is not an object")
        limits.check_depth(depth + 1)
        prepared: dict[str, Any] = {}
        for field in self.fields:
            try:
                if field.name in value:
                    prepared[field.name] = field.type.prepared(value[field.name], preparation, depth + 1)
                elif field.has_default:
                    prepared[field.name], size = field.prepared_default(depth + 1)
                    preparation.add_default(size)
                else:
                    raise MisfitError("it is missing")
            except MisfitError as error:
                error.path.insert(0, field.name)
                raise
        if unknown_fields := value.keys() - self._names:
            unknown = min(unknown_fields)
            raise MisfitError(f"it has the field {unknown}, which the schema does not have")
        return prepared

    def is_datum(self, datum: Any) -> bool:
        return isinstance(datum, tuple) and datum[0] == self.name

    def plain(self, datum: Any, preparation: Preparation) -> Any:
        return {field.name: field.type.plain(datum[field.name], preparation) for field in self.fields}

    def check_defaults(self) -> None:
        """Raises ValueError for a default that would fill in more than the limits allow."""
        for field in self.fields:
            try:
                if field.has_default:
                    field.prepared_default(0)
            except limits.TooLargeError as error:
                raise ValueError(f"the default of {self.name}.{field.name} is too large or contains itself") from error
            except ValueError:
                pass  # one that does not fit is refused where it is needed


class _Field:
    def __init__(self, schema: dict[str, Any], type_: Type) -> None:
        self.name = _checked_name(schema["name"])
        self.type = type_
        self.has_default = "default" in schema
        self.default: Any = schema.get("default")
        self._prepared: tuple[Any, int] | None = None

    def prepared_default(self, depth: int) -> tuple[Any, int]:
        """The default, with those of fields that are missing in it, and its size. Raises ValueError."""
        if self._prepared is None:
            preparation = Preparation()
            prepared = self.type.prepared(self.default, preparation, depth)
            self._prepared = prepared, preparation.defaults + len(json.dumps(self.default))
        return self._prepared


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
        self._named: dict[str, Type] = {kind: _Scalar(kind, kind, one) for kind, one in scalars.PRIMITIVES.items()}

    def type(self, schema: Any) -> Type:
        match schema:
            case str():
                return self._named[schema]
            case list():
                return self._union(schema)
            case {"type": "record" | "error", "name": name, "fields": fields}:
                record = self._named[_checked_name(name)] = Record(name)
                record.fields = [_Field(field, self.type(field["type"])) for field in fields]
                record.parts = [field.type for field in record.fields]
                return record
            case {"type": "array", "items": item} | {"type": "map", "values": item}:
                repeated = _Repeated(schema["type"])
                repeated.parts = [self.type(item)]
                return repeated
            case {"type": "enum", "name": name, "symbols": symbols}:
                self._named[name] = _Scalar(_checked_name(name), "enum", scalars.enumeration(frozenset(symbols)))
                return self._named[name]
            case {"type": "fixed", "name": name, "size": int(size)} if size >= 0 and not isinstance(size, bool):
                if schema.get("logicalType") == "decimal" and size > DECIMAL_BYTES:
                    raise ValueError(f"the decimal {name} has more than {DECIMAL_BYTES:,} bytes")
                fixed = _decimal(schema, size) or scalars.binary(size)
                self._named[name] = _Scalar(_checked_name(name), "fixed", fixed, size)
                return self._named[name]
            case {"type": "bytes", "logicalType": "decimal"}:
                return LongDecimal("bytes", "bytes", _decimal(schema) or scalars.PRIMITIVES["bytes"])
            case {"type": str(kind), "logicalType": str(logical)} if (kind, logical) in scalars.LOGICAL:
                return _Scalar(kind, kind, scalars.LOGICAL[kind, logical])
            case {"type": str(kind)} if kind in scalars.PRIMITIVES:
                return self._named[kind]
        raise ValueError(f"the schema has {schema!r:.100}, which is no type")

    def _union(self, schema: list[Any]) -> Type:
        union = _Union("union")
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


def _are_one(chosen: Type | None, branch: Type) -> bool:
    """Whether the choice makes the same JSON of it: integers and floats of both widths do."""
    return chosen is branch or (chosen is not None and any({chosen.name, branch.name} <= width for width in _ONE))


_ONE = ({"int", "long"}, {"float", "double"})
