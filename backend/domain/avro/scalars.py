"""Types of Avro without parts: which JSON their data are, and how each becomes the other.

JSON is taken for a type only if the datum reads back as the same JSON: no number loses digits, no text its zone. Bytes
are texts whose characters are U+0000 to U+00FF, as in Avro's own JSON (section "JSON Encoding"); numbers that JSON
lacks are the texts NaN, Infinity and -Infinity.
"""

import math
import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from backend.domain.numbers import as_written

_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_MOST_FLOAT_DIGITS = 7
"""Any decimal of so many digits reads back from a float as it was."""
_MOST_LONG_DIGITS = 19


class MisfitError(ValueError):
    """JSON or data that are not of a type. ``path`` is where the JSON is in the message, once all around it has
    added its step."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.path: list[str] = []


@dataclass(frozen=True, slots=True)
class Scalar:
    fits: Callable[[Any], bool]
    """Whether the library takes a JSON value for one of this type when it chooses the branch of a union. Decimals are
    floats here."""
    native: Callable[[Any], Any]
    """The value for the library. Raises MisfitError."""
    types: tuple[type, ...] = ()
    """Of native values, as the library reads them."""
    plain: Callable[[Any], Any] = lambda datum: datum
    """The native value as JSON."""

    def takes(self, value: Any) -> bool:
        try:
            self.native(value)
        except MisfitError:
            return False
        return True


def _only(what: str, kind: type) -> Callable[[Any], Any]:
    def native(value: Any) -> Any:
        if not isinstance(value, kind):
            raise MisfitError(f"it is not {what}")
        return value

    return native


def _null(value: Any) -> None:
    if value is not None:
        raise MisfitError("it is not null")


@dataclass(frozen=True, slots=True)
class Range:
    """Integers from ``least`` to ``most``."""

    least: int
    most: int
    name: str

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and self.least <= number <= self.most


def _of_bits(bits: int) -> Range:
    return Range(-(1 << (bits - 1)), (1 << (bits - 1)) - 1, f"the range of {bits} bits")


def integer(within: Range) -> Scalar:
    def native(value: Any) -> int:
        if isinstance(value, Decimal) and value == value.to_integral_value():
            value = int(value) if value.adjusted() < _MOST_LONG_DIGITS else within.most + 1
        if not isinstance(value, int) or isinstance(value, bool):
            raise MisfitError("it is not an integer")
        if value not in within:
            raise MisfitError(f"it is out of {within.name}")
        return value

    def fits(value: Any) -> bool:
        return not isinstance(value, bool) and value in within

    return Scalar(fits, native, (int,))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _floating(name: str, holds: Callable[[Decimal, float], bool], rounded: Callable[[float], float]) -> Scalar:
    def native(value: Any) -> float:
        if isinstance(value, str) and value in _NOT_FINITE:
            return _NOT_FINITE[value]
        if not _is_number(value):
            raise MisfitError("it is not a number")
        try:
            number = rounded(float(value))
        except OverflowError:
            number = math.inf
        if math.isinf(number):
            raise MisfitError(f"it is out of the range of a {name}")
        if not holds(as_written(value), number):
            raise MisfitError(f"it has more digits than a {name} holds")
        return number

    def plain(datum: float) -> Any:
        if math.isfinite(datum):
            return datum
        return "NaN" if math.isnan(datum) else "Infinity" if datum > 0 else "-Infinity"

    return Scalar(_is_number, native, (float,), plain)


def _double_holds(value: Decimal, number: float) -> bool:
    return value == as_written(number)


def _float_holds(value: Decimal, number: float) -> bool:
    digits = value.normalize().as_tuple().digits
    return len(digits) <= _MOST_FLOAT_DIGITS or _double_holds(value, number)


def _as_float(number: float) -> float:
    return float(struct.unpack("f", struct.pack("f", number))[0])


def never(_value: Any) -> bool:
    """No JSON value is one of bytes for the library."""
    return False


def binary(size: int | None = None) -> Scalar:
    """Bytes, or a fixed number of them."""

    def native(value: Any) -> bytes:
        if not isinstance(value, str):
            raise MisfitError("it is not a text, which is how JSON has bytes")
        try:
            data = value.encode("latin-1")
        except UnicodeEncodeError as error:
            raise MisfitError(f"it has the character U+{ord(value[error.start]):04X}, which is no byte") from None
        if size is not None and len(data) != size:
            raise MisfitError(f"it has {len(data)} bytes instead of {size}")
        return data

    return Scalar(never, native, (bytes,), lambda datum: datum.decode("latin-1"))


def enumeration(symbols: frozenset[str]) -> Scalar:
    def native(value: Any) -> str:
        if not isinstance(value, str) or value not in symbols:
            raise MisfitError("it is none of the symbols")
        return value

    return Scalar(lambda value: isinstance(value, str) and value in symbols, native, (str,))


def decimal(precision: int, scale: int, size: int | None = None) -> Scalar:
    """``size`` is that of a fixed number of bytes."""

    def native(value: Any) -> Decimal:
        if not isinstance(value, int | Decimal) or isinstance(value, bool):
            raise MisfitError("it is not a number")
        number = Decimal(value)
        _, digits, exponent = number.normalize().as_tuple()
        if not isinstance(exponent, int) or exponent < -scale:
            raise MisfitError(f"it has more than {scale} digits behind the point")
        if number and len(digits) + exponent + scale > precision:
            raise MisfitError(f"it has more than {precision} digits")
        if size is not None:
            bound = 1 << (8 * size - 1)
            if not -bound <= int(number.scaleb(scale)) < bound:
                raise MisfitError(f"it does not fit into {size} bytes")
        return number

    return Scalar(never, native, (Decimal,))


def _uuid(value: Any) -> str:
    try:
        return str(uuid.UUID(_only("a UUID", str)(value)))
    except ValueError:
        raise MisfitError("it is not a UUID") from None


PRIMITIVES = {
    "null": Scalar(lambda value: value is None, _null, (type(None),)),
    "boolean": Scalar(lambda value: isinstance(value, bool), _only("true or false", bool), (bool,)),
    "int": integer(_of_bits(32)),
    "long": integer(_of_bits(64)),
    "float": _floating("float", _float_holds, _as_float),
    "double": _floating("double", _double_holds, lambda number: number),
    "string": Scalar(lambda value: isinstance(value, str), _only("a text", str), (str,)),
    "bytes": binary(),
}
"""By the name of the type."""

UUID = Scalar(lambda value: isinstance(value, str), _uuid, (uuid.UUID,), str)
