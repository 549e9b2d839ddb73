"""Reads and writes whole frames: header and body of requests and responses.

Records are never parsed: they are read as views of the frame and written as separate buffers, without a copy.
"""

import struct
from dataclasses import dataclass

from backend.kafka.wire import primitives
from backend.kafka.wire.compiler import Coder, coder
from backend.kafka.wire.messages import REQUESTS, RESPONSES
from backend.kafka.wire.primitives import Buffer, MalformedError, Parts
from backend.kafka.wire.structs import Struct, struct_type

_API_VERSIONS = 18
_HEADER = struct.Struct(">hhi")
_CORRELATION = struct.Struct(">i")
_SIZE = struct.Struct(">i")


@dataclass(slots=True)
class RequestHeader:
    """The header of a request. ``body`` is the offset of the body in the frame."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: int


def read_request_header(frame: Buffer) -> RequestHeader:
    """Reads the header of a frame, which begins with its size. Raises MalformedError."""
    try:
        api_key, version, correlation_id = _HEADER.unpack_from(frame, 4)
        client_id, at = primitives.read_nullable_string(frame, 12)
        message = REQUESTS.get(api_key)
        if message is not None and version in message.flexible:
            at = _skip_tags(frame, at)
    except (IndexError, struct.error, ValueError) as error:
        raise MalformedError(f"This is not the header of a request: {error}.") from None
    return RequestHeader(api_key, version, correlation_id, client_id, at)


def read_request(api_key: int, version: int, frame: Buffer, at: int) -> Struct:
    """Reads the body, which begins at ``at``. Raises MalformedError."""
    return _read(coder(REQUESTS[api_key], version), frame, at)


def read_response(api_key: int, version: int, frame: Buffer) -> Struct:
    """Reads the body of a whole frame. Raises MalformedError."""
    at = 4 + _CORRELATION.size
    if _has_response_tags(api_key, version):
        try:
            at = _skip_tags(frame, at)
        except (IndexError, ValueError) as error:
            raise MalformedError(str(error)) from None
    return _read(coder(RESPONSES[api_key], version), frame, at)


def put_request_correlation(parts: Parts, correlation_id: int) -> None:
    """Writes the correlation id into a request's frame, in place."""
    _CORRELATION.pack_into(parts[0], 8, correlation_id)  # type: ignore[arg-type]


def put_response_correlation(frame: bytearray, correlation_id: int) -> None:
    """Writes the correlation id into a response's frame, in place."""
    _CORRELATION.pack_into(frame, 4, correlation_id)


def response_correlation(frame: Buffer) -> int:
    """The correlation id of a response's frame."""
    correlation_id: int = _CORRELATION.unpack_from(frame, 4)[0]
    return correlation_id


def write_request(api_key: int, version: int, correlation_id: int, client_id: str | None, body: Struct) -> Parts:
    """Returns a whole frame, including its size, as the buffers that it consists of."""
    head = bytearray(4)
    head += _HEADER.pack(api_key, version, correlation_id)
    primitives.write_string(head, client_id)
    message = REQUESTS[api_key]
    if version in message.flexible:
        head.append(0)
    return _write(coder(message, version), head, body)


def write_response(api_key: int, version: int, correlation_id: int, body: Struct) -> Parts:
    """Returns a whole frame, including its size, as the buffers that it consists of."""
    head = bytearray(4)
    head += _CORRELATION.pack(correlation_id)
    if _has_response_tags(api_key, version):
        head.append(0)
    return _write(coder(RESPONSES[api_key], version), head, body)


def request_type(api_key: int) -> type[Struct]:
    return struct_type(REQUESTS[api_key])


def response_type(api_key: int) -> type[Struct]:
    return struct_type(RESPONSES[api_key])


def _has_response_tags(api_key: int, version: int) -> bool:
    # A client must be able to read this response whatever version it asked for, so its header has no tags: KIP-511.
    return version in RESPONSES[api_key].flexible and api_key != _API_VERSIONS


def _read(message: Coder, frame: Buffer, at: int) -> Struct:
    try:
        body, end = message.read(frame, at)
    except MalformedError:
        raise
    except (IndexError, struct.error, ValueError, OverflowError) as error:
        raise MalformedError(f"{message.name}: {error}.") from None
    if end > len(frame):
        raise MalformedError(f"{message.name}: the frame ends too early.")
    return body


def _write(coder: Coder, head: bytearray, body: Struct) -> Parts:
    parts: Parts = [head]
    coder.write(body, parts)
    _SIZE.pack_into(head, 0, sum(map(len, parts)) - 4)
    return [part for part in parts if part]


def _skip_tags(frame: Buffer, at: int) -> int:
    count, at = primitives.read_uvarint(frame, at)
    for _ in range(count):
        _, at = primitives.read_uvarint(frame, at)
        size, at = primitives.read_uvarint(frame, at)
        at += size
    return at
