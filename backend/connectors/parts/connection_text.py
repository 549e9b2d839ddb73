"""Why there is no connection, in words for people."""

import os
import re
import ssl
from collections.abc import Iterator

_SYSTEM = re.compile(r"\[Errno (\d+)\].*")
_TLS = re.compile(r"\[SSL: \w+\] | \(_ssl\.c:\d+\)")


def connection_text(error: BaseException, otherwise: str = "") -> str:
    """What the operating system or TLS says about a connection that failed, without a full stop; ``otherwise`` where
    neither is to blame.

    Libraries wrap these errors in their own, whose texts quote Python's: names of exceptions, numbers, tuples.
    """
    chain = list(chain_of(error))
    # aiohttp's errors of TLS are errors of the system, too, with OpenSSL's number in the place of the system's.
    for cause in sorted(chain, key=lambda cause: not isinstance(cause, ssl.SSLError)):
        match cause:
            case ssl.SSLCertVerificationError(verify_message=str(text)) if text:
                return text.rstrip(".")
            case ssl.SSLError(reason=str(reason)):
                return reason.replace("_", " ").lower()
            case ssl.SSLError():
                continue
            case OSError(errno=int(number), strerror=str(text)) if text:
                # asyncio writes a text of its own where the system's would be.
                return os.strerror(number) if number > 0 else text
    return _plain(otherwise or str(error))


def _plain(text: str) -> str:
    """A library's text that quotes an error of Python's without being raised for it."""
    text = _SYSTEM.sub(lambda found: os.strerror(int(found[1])), text)
    return _TLS.sub("", text).rstrip(".")


def chain_of(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and what it was raised for."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
