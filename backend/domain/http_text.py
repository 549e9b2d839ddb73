"""What may stand in a URL (RFC 3986) and in a header (RFC 9110): at save, when messages are accepted, and when they
are sent."""

import re
from collections.abc import Callable
from typing import Annotated
from urllib.parse import quote

from pydantic import AfterValidator, SecretStr

from backend.domain import limits

_KEPT_IN_URLS = ":/?#@!$&'()*+,;=~%"
_BARE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# Every other character is sent as UTF-8.
_NOT_IN_A_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_FRAMING = {"content-length", "transfer-encoding"}
"""They say where a body ends, which only the sender of the body knows."""
_IN_A_TYPE = re.compile(rb"[\t -~]+")
_BLANKS = " \t"
"""The receiver of a header removes them from both ends of its value (RFC 9110, section 5.5)."""


class HeaderError(ValueError):
    """A header that cannot be sent; the message does not repeat its value."""


def encoded(path: str) -> str:
    """A path with a query in ASCII: what RFC 3986 does not allow there is percent-encoded as UTF-8. What is encoded
    already stays as it is."""
    return _BARE_PERCENT.sub("%25", quote(path, safe=_KEPT_IN_URLS))


def check_value(value: str) -> str:
    """The value of a header, unchanged. Raises HeaderError."""
    if _NOT_IN_A_VALUE.search(value):
        raise HeaderError("It has a line break or another control character, which no header can hold.")
    return value


def content_type(sent: bytes) -> str:
    """A content type as a client sent it. Raises HeaderError."""
    if len(sent) > limits.HEADER_BYTES:
        raise HeaderError(f"The content type is longer than {limits.HEADER_BYTES:,} bytes.")
    if sent and not _IN_A_TYPE.fullmatch(sent):
        raise HeaderError("A content type has only letters, digits and punctuation of ASCII, such as application/json.")
    return sent.decode().strip(_BLANKS)


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise HeaderError(f"{name!r} is not the name of a header: use letters, digits and hyphens, such as X-Source.")
    if name.lower() in _FRAMING:
        raise HeaderError(f"{name} is set for each request by Headrace; leave it out.")
    return name


def _received(value: str) -> str:
    """The value as its receiver has it."""
    received = check_value(value).strip(_BLANKS)
    if value and not received:
        raise HeaderError("It has nothing but blanks, which a header cannot hold.")
    return received


def _check_key(value: str) -> str:
    if check_value(value) != value.strip(_BLANKS):
        raise HeaderError("It begins or ends with a blank; enter it without.")
    return value


def _check_user(name: str) -> str:
    if ":" in check_value(name):
        raise HeaderError("It has a colon, which separates the user name from the password; enter it without.")
    return name


def _of_secret(check: Callable[[str], str]) -> AfterValidator:
    return AfterValidator(lambda secret: SecretStr(check(secret.get_secret_value())))


HeaderName = Annotated[str, AfterValidator(_check_name)]
HeaderValue = Annotated[str, AfterValidator(_received)]
HeaderCredential = Annotated[SecretStr, _of_secret(_received)]
"""A secret that is the value of a header, or the end of one."""
SigningKey = Annotated[SecretStr, _of_secret(_check_key)]
"""A secret text that two sides sign with, which a copied line break would change unnoticed."""
UserName = Annotated[str, AfterValidator(_check_user)]
"""The first half of a login (RFC 7617, section 2)."""
Password = Annotated[SecretStr, _of_secret(check_value)]
"""The second half of a login."""
