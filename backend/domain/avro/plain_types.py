"""Types without parts: the primitive ones, enumerations and fixed, with their logical types."""

from decimal import Decimal
from typing import Any

from backend.domain import limits
from backend.domain.avro.scalars import Scalar
from backend.domain.avro.types import Preparation, Scan, Type

DECIMAL_BYTES = 4096
"""Limit of a decimal's integer, some 9,800 digits: converting one takes time by the square of its length."""
_WIDTHS = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_LENGTH_FIRST = frozenset({"string", "bytes"})
_NAMED = frozenset({"enum", "fixed"})


class PlainType(Type):
    """A type without parts."""

    _own_depth = 0

    def __init__(self, name: str, kind: str, scalar: Scalar, width: int | None = None) -> None:
        super().__init__(name)
        self._kind = kind
        self.scalar = scalar
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
        if self.scalar.fits(float(value) if isinstance(value, Decimal) else value):
            return True
        return preparation.is_lenient and self.scalar.takes(value)

    compare = fits

    def prepared(self, value: Any, preparation: Preparation, depth: int) -> Any:
        return self.scalar.native(value)

    def is_datum(self, datum: Any) -> bool:
        if isinstance(datum, tuple):
            return bool(datum[0] == self.name)
        return self._kind not in _NAMED and type(datum) in self.scalar.types

    def plain(self, datum: Any, preparation: Preparation) -> Any:
        return self.scalar.plain(datum)


class LongDecimal(PlainType):
    """A decimal in bytes. Section "Decimal": its integer is of any length."""

    def enter(self, scan: Scan) -> None:
        size = scan.long()
        if size > DECIMAL_BYTES:
            raise limits.TooLargeError(f"A decimal has more than {DECIMAL_BYTES:,} bytes.")
        scan.skip(size)
