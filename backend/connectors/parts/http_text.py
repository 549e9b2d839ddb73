"""What may stand in a URL (RFC 3986) and in a header (RFC 9110)."""

import re
from typing import Annotated
from urllib.parse import quote

from pydantic import AfterValidator, SecretStr

_KEPT_IN_URLS = ":/?#@!$&'()*+,;=~%"
_BARE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# Every other character is sent as UTF-8.
_NOT_IN_A_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


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


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise HeaderError(f"{name!r} is not the name of a header: use letters, digits and hyphens, such as X-Source.")
    return name


def _check_credential(secret: SecretStr) -> SecretStr:
    check_value(secret.get_secret_value())
    return secret


HeaderName = Annotated[str, AfterValidator(_check_name)]
HeaderValue = Annotated[str, AfterValidator(check_value)]
HeaderCredential = Annotated[SecretStr, AfterValidator(_check_credential)]
"""A secret that is the value of a header, or a part of it."""
