"""Content codings (RFC 9110, section 8.4.1): what a client has compressed is unpacked, within a limit."""

import zlib
from collections.abc import Callable

import brotli  # type: ignore[import-untyped]
from backports.zstd import DecompressionParameter, ZstdDecompressor, ZstdError

_MOST_CODINGS = 2
_MOST_PARTS = 100
"""Of members or frames: each costs a copy of what follows it."""
_WINDOW_LOG = 23
"""A frame of zstd may ask for a window of 8 MiB (RFC 9659), which is allocated when its header is read."""


class UnknownCodingError(ValueError):
    """A content coding that is not supported; the message names those that are."""


class BrokenCodingError(ValueError):
    """A body that was not compressed as its header says, or that ends early."""


class UnpackedTooLargeError(ValueError):
    """A body that is larger than the limit once it is unpacked."""


def unpacked(body: bytes, content_encoding: str, most: int) -> bytes:
    """The body without its content codings, of up to ``most`` bytes; no more than that is ever unpacked.

    ``content_encoding`` is the header's value. Raises UnknownCodingError, BrokenCodingError, UnpackedTooLargeError.
    """
    codings = [coding for part in content_encoding.split(",") if (coding := part.strip().lower())]
    codings = [coding for coding in codings if coding != "identity"]
    unknown = [coding for coding in codings if coding not in _DECODERS]
    if unknown or len(codings) > _MOST_CODINGS:
        raise UnknownCodingError(
            f"Send the body as it is, or with the Content-Encoding {', '.join(SUPPORTED[:-1])} or {SUPPORTED[-1]}."
        )
    for coding in reversed(codings):
        body = _DECODERS[coding](body, most)
    return body


def _gunzipped(body: bytes, most: int) -> bytes:
    """All members of the file (RFC 1952, section 2.2)."""
    whole = bytearray()
    for _ in range(_MOST_PARTS):
        member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        whole += _inflated_by(member, body, most - len(whole))
        body = member.unused_data
        if not body:
            return bytes(whole)
    raise _too_many_parts()


def _inflated(body: bytes, most: int) -> bytes:
    """The zlib format (RFC 1950). Some clients send its content alone (RFC 1951), as section 8.4.1.2 warns."""
    has_header = len(body) > 1 and body[0] & 0x0F == 8 and (body[0] << 8 | body[1]) % 31 == 0
    stream = zlib.decompressobj(zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS)
    whole = _inflated_by(stream, body, most)
    if stream.unused_data:
        raise BrokenCodingError("The compressed body has bytes behind its end.")
    return whole


def _inflated_by(stream: "zlib._Decompress", body: bytes, most: int) -> bytes:
    try:
        part = stream.decompress(body, most + 1)
    except zlib.error as error:
        raise _broken(error) from None
    _check(len(part), most)
    if not stream.eof:
        raise _ended_early()
    return part


def _from_brotli(body: bytes, most: int) -> bytes:
    """RFC 7932."""
    stream = brotli.Decompressor()
    whole = bytearray()
    try:
        whole += stream.process(body, output_buffer_limit=most + 1)
        while not stream.is_finished() and not stream.can_accept_more_data() and len(whole) <= most:
            whole += stream.process(b"", output_buffer_limit=most + 1)
    except brotli.error as error:
        raise _broken(error) from None
    _check(len(whole), most)
    if not stream.is_finished():
        raise _ended_early()
    return bytes(whole)


def _from_zstd(body: bytes, most: int) -> bytes:
    """All frames (RFC 8878, section 3.1)."""
    whole = bytearray()
    for _ in range(_MOST_PARTS):
        frame = ZstdDecompressor(options={DecompressionParameter.window_log_max: _WINDOW_LOG})
        try:
            whole += frame.decompress(body, most + 1 - len(whole))
        except ZstdError as error:
            raise _broken(error) from None
        _check(len(whole), most)
        if not frame.eof:
            raise _ended_early()
        body = frame.unused_data
        if not body:
            return bytes(whole)
    raise _too_many_parts()


def _check(size: int, most: int) -> None:
    if size > most:
        raise UnpackedTooLargeError(f"The body is larger than {most:,} bytes once it is unpacked; split it.")


def _broken(error: Exception) -> BrokenCodingError:
    return BrokenCodingError(f"The body is not compressed as its Content-Encoding says ({error}).")


def _ended_early() -> BrokenCodingError:
    return BrokenCodingError("The compressed body ends early.")


def _too_many_parts() -> BrokenCodingError:
    return BrokenCodingError(f"The compressed body has more than {_MOST_PARTS} parts; compress it as one.")


_DECODERS: dict[str, Callable[[bytes, int], bytes]] = {
    "gzip": _gunzipped,
    "deflate": _inflated,
    "br": _from_brotli,
    "zstd": _from_zstd,
    "x-gzip": _gunzipped,
}
SUPPORTED = ("gzip", "deflate", "br", "zstd")
