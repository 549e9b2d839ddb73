"""Parts of a JSON document as they are written in it, so that no number is changed and little is decoded."""

from collections.abc import Sequence

import msgspec

from backend.domain.json import InvalidJsonError

_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_list = msgspec.json.Decoder(list[msgspec.Raw])


def raw_at(document: bytes, steps: Sequence[str]) -> bytes | None:
    """The value at the path; None when there is none. Raises InvalidJsonError."""
    value: bytes | None = document
    for step in steps:
        if value is None:
            return None
        match _kind(value):
            case b"{":
                part = _decoded(_object, value).get(step)
                value = None if part is None else bytes(part)
            case b"[" if step.isascii() and step.isdigit():
                items = _decoded(_list, value)
                value = bytes(items[int(step)]) if int(step) < len(items) else None
            case _:
                return None
    return value


def raw_items(value: bytes) -> list[bytes] | None:
    """The items of a list; None when the value is no list. Raises InvalidJsonError."""
    return [bytes(item) for item in _decoded(_list, value)] if _kind(value) == b"[" else None


def _kind(value: bytes) -> bytes:
    return value.lstrip()[:1]


def _decoded(decoder: msgspec.json.Decoder, value: bytes):  # type: ignore[no-untyped-def,type-arg]
    try:
        return decoder.decode(value)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidJsonError(f"{error}".rstrip(".") + ".") from None
