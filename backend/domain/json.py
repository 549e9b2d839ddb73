"""JSON in and out with every number kept as it was written: big integers and decimals alike."""

import decimal
from typing import Any

import msgspec

_decoder = msgspec.json.Decoder(float_hook=decimal.Decimal)
_encoder = msgspec.json.Encoder(decimal_format="number")


class InvalidJsonError(ValueError):
    """The text is not JSON; the message says where."""


def loads(data: bytes | str) -> Any:
    """Decodes JSON. Raises InvalidJsonError."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, decimal.InvalidOperation) as error:
        raise InvalidJsonError(f"{error}".rstrip(".") + ".") from None


def dumps(value: Any) -> bytes:
    """Encodes a value made of JSON's types, Decimal and UUID."""
    return _encoder.encode(value)


def text(value: Any) -> str:
    """A string as it is, anything else as JSON."""
    return value if isinstance(value, str) else dumps(value).decode()


def indented(data: bytes) -> str:
    """JSON for people to read."""
    return msgspec.json.format(data, indent=2).decode()
