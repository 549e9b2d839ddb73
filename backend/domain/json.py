"""JSON encoding and decoding that preserves every number as written, including large integers and decimals."""

import decimal
from typing import Any

import msgspec

_decoder = msgspec.json.Decoder(float_hook=decimal.Decimal)
_encoder = msgspec.json.Encoder(decimal_format="number")
_canonical = msgspec.json.Encoder(decimal_format="number", order="sorted")


class InvalidJsonError(ValueError):
    """The text is not JSON; the message gives the position."""


def loads(data: bytes | str) -> Any:
    """Decodes JSON. Raises InvalidJsonError."""
    try:
        return _decoder.decode(data)
    except decimal.InvalidOperation:
        raise InvalidJsonError("A number in it is out of range.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidJsonError(f"{error}".rstrip(".") + ".") from None


def dumps(value: Any) -> bytes:
    """Encodes a value that consists of JSON's types, Decimal and UUID."""
    return _encoder.encode(value)


def canonical(value: Any) -> bytes:
    """The same for equal values: without spaces, and with the names of objects in their order."""
    return _canonical.encode(value)


def text(value: Any) -> str:
    """A string unchanged, any other value as JSON."""
    return value if isinstance(value, str) else dumps(value).decode()


def bounded_int(value: Any, low: int, high: int) -> int:
    """The value of a document if it is an integer from ``low`` to ``high``. Raises ValueError.

    Any number that another system wrote has bounds before it is converted: as an integer, 1e999999999 would fill the
    memory, and no column or clock holds it.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"not an integer from {low} to {high}")
    return int(value)


def bounded_float(value: Any, low: int, high: int) -> float:
    """The value of a document if it is a number from ``low`` to ``high``. Raises ValueError."""
    if not isinstance(value, int | decimal.Decimal) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"not a number from {low} to {high}")
    return float(value)


def indented(data: bytes) -> str:
    """Formats JSON with an indent of two spaces."""
    return msgspec.json.format(data, indent=2).decode()
