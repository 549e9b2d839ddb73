"""Bytes as text, by what says best which encoding they are in."""

import codecs
import re

_MARKS = [
    # The mark of UTF-32 begins with that of UTF-16.
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
]
_CHARSET = re.compile(r""";\s*charset\s*=\s*"?([^\s;"]+)""", re.IGNORECASE)
_SAMPLE_BYTES = 200


def charset_of(content_type: str) -> str:
    """The parameter ``charset`` of a content type (RFC 9110 8.3.2), or an empty text."""
    found = _CHARSET.search(content_type)
    return found[1] if found else ""


def decode(data: bytes, charset: str = "") -> str:
    """The text, without the byte-order mark. A mark wins over ``charset``; without both it is UTF-8.

    Raises ValueError, with a sentence, for bytes that are not in that encoding and for a charset that is not known.
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _decoded(data[len(mark) :], encoding)
    return _decoded(data, charset or "utf-8")


def _decoded(data: bytes, encoding: str) -> str:
    try:
        codec = codecs.lookup(encoding)
        if not codec._is_text_encoding:  # such as base64, which makes bytes of bytes
            raise LookupError
    except (LookupError, ValueError):
        raise ValueError(f"The charset {encoding} is not known.") from None
    try:
        return codec.decode(data)[0]
    except UnicodeDecodeError as error:
        what = f"This is not valid {codec.name.upper()}: {error.reason} at byte {error.start}."
        raise ValueError(what + _advice(data, codec.name)) from None


def _advice(data: bytes, encoding: str) -> str:
    """What the bytes look like instead."""
    if encoding != "utf-8":
        return ""
    sample = data[:_SAMPLE_BYTES]
    if b"\0" in sample[::2] or b"\0" in sample[1::2]:
        return " It looks like UTF-16, which needs a byte-order mark or a charset in the content type."
    return " Another encoding needs a charset in the content type."
