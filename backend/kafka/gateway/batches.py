"""Record batches, format version 2: Kafka protocol guide, "Record Batch"."""

import gzip
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

import google_crc32c
from backports import zstd

from backend.kafka.gateway.ports import Record

_BEFORE_CRC = struct.Struct(">qiibI")
_AFTER_CRC = struct.Struct(">hiqqqhii")
_NO_PRODUCER = (-1, -1, -1)
_MAGIC = 2
_GZIP_LEVEL, _ZSTD_LEVEL = 1, 1
_RECORD_OVERHEAD = 16


class Compression(IntEnum):
    """The codec in a batch's attributes."""

    NONE = 0
    GZIP = 1
    ZSTD = 4


@dataclass(frozen=True, slots=True)
class Batch:
    """An encoded batch with the offsets of its first and last record."""

    base: int
    last: int
    data: bytes


def batches(records: Sequence[Record], epoch: int, compression: Compression, max_bytes: int) -> Iterator[Batch]:
    """Encodes records as batches of about ``max_bytes`` before compression."""
    begin = size = 0
    for at, record in enumerate(records):
        length = len(record.key or b"") + len(record.value or b"") + _RECORD_OVERHEAD
        if size and size + length > max_bytes:
            yield _batch(records[begin:at], epoch, compression)
            begin, size = at, 0
        size += length
    if begin < len(records):
        yield _batch(records[begin:], epoch, compression)


def _batch(records: Sequence[Record], epoch: int, compression: Compression) -> Batch:
    first, last = records[0], records[-1]
    content = _content(records, first.offset, first.timestamp)
    if compression is Compression.GZIP:
        content = gzip.compress(content, _GZIP_LEVEL)
    elif compression is Compression.ZSTD:
        content = zstd.compress(content, _ZSTD_LEVEL)
    after = _AFTER_CRC.pack(
        *(compression, last.offset - first.offset, first.timestamp, max(record.timestamp for record in records)),
        *(*_NO_PRODUCER, len(records)),
    )
    crc = google_crc32c.extend(google_crc32c.value(after), content)
    length = _BEFORE_CRC.size - 12 + len(after) + len(content)
    before = _BEFORE_CRC.pack(first.offset, length, epoch, _MAGIC, crc)
    return Batch(first.offset, last.offset, b"".join((before, after, content)))


def _content(records: Sequence[Record], base: int, begin: int) -> bytes:
    """The hot loop of the gateway: about a microsecond for each record."""
    parts: list[bytes] = []
    add, short, shorts = parts.append, _SHORT, len(_SHORT)
    for record in records:
        key, value = record.key, record.value
        time, delta = record.timestamp - begin, record.offset - base
        tail = b"\0" if not record.headers else _headers(record.headers)
        head = (
            b"\0"
            + (short[time] if 0 <= time < shorts else varint(time))
            + (short[delta] if delta < shorts else varint(delta))
        )
        if key is None:
            head += b"\1"
        else:
            head += (short[len(key)] if len(key) < shorts else varint(len(key))) + key
        if value is None:
            head, value = head + b"\1", b""
        else:
            head += short[len(value)] if len(value) < shorts else varint(len(value))
        length = len(head) + len(value) + len(tail)
        add(short[length] if length < shorts else varint(length))
        add(head)
        add(value)
        add(tail)
    return b"".join(parts)


def _headers(headers: tuple[tuple[str, bytes], ...]) -> bytes:
    parts = [varint(len(headers))]
    for name, value in headers:
        encoded = name.encode()
        parts += (varint(len(encoded)), encoded, varint(len(value)), value)
    return b"".join(parts)


def varint(value: int) -> bytes:
    """A zigzag-encoded variable-length integer."""
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


_SHORT = tuple(varint(value) for value in range(8192))
