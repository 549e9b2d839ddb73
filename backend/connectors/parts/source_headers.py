"""What comes with a record beside its body, as headers that travel with the message, and how outputs write them."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any

from pydantic import Field

from backend.domain import json, limits
from backend.domain.message import CONTENT_TYPE, MESSAGE_ID, Message, SourceHeader
from backend.domain.model import ADVANCED

KeepHeaders = Annotated[
    bool,
    Field(
        description="Whether the headers of a record that was read are written with it.",
        json_schema_extra=ADVANCED,
    ),
]
"""The option of outputs; its default is True."""

_OWN = {MESSAGE_ID, CONTENT_TYPE}
"""What outputs write of each message."""
_NO_CHARACTERS = "".join(chr(plane << 16 | end) for plane in range(17) for end in (0xFFFE, 0xFFFF))
_UNFIT = re.compile(f"[\\x00-\\x1f\\x7f-\\x9f\\ufdd0-\\ufdef{_NO_CHARACTERS}]")
"""Control characters, and what Unicode calls no characters."""


def headers_of(pairs: Iterable[tuple[str, Any]]) -> list[SourceHeader]:
    """Names and values of any kind as headers. Bytes stay what they are, times become ISO 8601, and lists and objects
    JSON."""
    return [(name, _bytes(value)) for name, value in pairs]


def present(**properties: Any) -> list[tuple[str, Any]]:
    """The properties that a record has, with dashes in their names."""
    return [(name.replace("_", "-"), value) for name, value in properties.items() if value not in (None, "", b"")]


def passed_on(message: Message, keep: bool) -> list[SourceHeader]:
    """The headers that an output writes beside its own, in their order."""
    if not keep:
        return []
    return [(name, value) for name, value in message.source_headers() if name.lower() not in _OWN]


def text_of(value: bytes | None) -> str | None:
    """The value as text; None where it is not UTF-8."""
    try:
        return (value or b"").decode()
    except UnicodeDecodeError:
        return None


def is_plain(text: str) -> bool:
    """Whether every protocol of texts takes it: without control characters, and what Unicode calls no characters."""
    return not _UNFIT.search(text)


def plain_texts(headers: Iterable[SourceHeader]) -> list[tuple[str, str]]:
    """Those whose names and values are plain text."""
    texts = [(name, text_of(value)) for name, value in headers]
    return [(name, text) for name, text in texts if name and text is not None and is_plain(name) and is_plain(text)]


def _bytes(value: Any) -> bytes | None:
    match value:
        case None:
            return None
        case bytes() | bytearray() | memoryview():
            return bytes(value)
        case datetime():
            at = value.astimezone(UTC) if value.tzinfo is not None else value.replace(tzinfo=UTC)
            return at.isoformat().replace("+00:00", "Z").encode()
        case Decimal():
            return str(value).encode()
        case list() | dict():
            return json.dumps(_document(value))
    return json.text(value).encode(errors="replace")


def _document(value: Any, depth: int = 1) -> Any:
    """A list or an object with nothing but what JSON has; null where it is too deep for a decoder."""
    match value:
        case dict() | list() if depth > limits.DEPTH:
            return None
        case dict():
            return {str(name): _document(field, depth + 1) for name, field in value.items()}
        case list():
            return [_document(item, depth + 1) for item in value]
        case str() | bool() | int() | float() | None:
            return value
    return (_bytes(value) or b"").decode(errors="replace")
