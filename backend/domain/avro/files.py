"""Section "Object Container Files": blocks of data, with their schema before them."""

import bz2
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, cast

import fastavro

from backend.domain import json, limits
from backend.domain.avro.schema import AvroSchema

_MAGIC = b"Obj\x01"
_MARKER_BYTES = 16
_XZ_MEMORY_BYTES = 128 * 1024 * 1024
_MOST = limits.AVRO_BLOCK_BYTES + 1

Unpack = Callable[[bytes], bytes]


def read_file(file: BinaryIO) -> Iterator[Any]:
    """The data of a file, as native values. Raises ValueError.

    The library itself would unpack a block to any size.
    """
    if file.read(len(_MAGIC)) != _MAGIC:
        raise ValueError("This is not an Avro file.")
    metadata = {}
    while count := _long(file):
        if count < 0:
            _long(file)
        for _ in range(abs(count)):
            name = _bytes(file).decode()
            metadata[name] = _bytes(file)
    schema = AvroSchema(json.loads(metadata.get("avro.schema", b"")))
    unpacked = _unpacker(metadata.get("avro.codec", b"null").decode())
    marker = _exactly(file, _MARKER_BYTES)
    while (rows := _count(file)) is not None:
        block = io.BytesIO(unpacked(_bytes(file)))
        if _exactly(file, _MARKER_BYTES) != marker:
            raise ValueError("The Avro file is damaged: a block does not end with the file's marker.")
        for _ in range(rows):
            yield schema.read_next(block)


def _count(file: BinaryIO) -> int | None:
    """How many data the next block has; none at the end of the file."""
    try:
        return cast(int, fastavro.schemaless_reader(file, "long", None))
    except (EOFError, IndexError):  # the library raises the one or the other
        return None


def _long(file: BinaryIO) -> int:
    number = _count(file)
    if number is None:
        raise ValueError("The Avro file ends early.")
    return number


def _bytes(file: BinaryIO) -> bytes:
    return _exactly(file, _long(file))


def _exactly(file: BinaryIO, size: int) -> bytes:
    if not 0 <= size <= limits.AVRO_BLOCK_BYTES:
        raise ValueError(f"A part of the Avro file does not have 0 to {limits.AVRO_BLOCK_BYTES:,} bytes.")
    part = file.read(size)
    if len(part) < size:
        raise ValueError("The Avro file ends early.")
    return part


def _unpacker(codec: str) -> Unpack:
    if codec == "null":
        return lambda data: data
    if codec not in _CODECS:
        raise ValueError(f"The Avro file has the codec {codec:.50}, which cannot be read.")
    unpack = _CODECS[codec]

    def unpacked(data: bytes) -> bytes:
        block = unpack(data)
        if len(block) == _MOST:
            raise ValueError(f"A block of the Avro file unpacks to more than {limits.AVRO_BLOCK_BYTES:,} bytes.")
        return block

    return unpacked


def _zstandard(data: bytes) -> bytes:
    from backports.zstd import ZstdDecompressor

    return bytes(ZstdDecompressor().decompress(data, _MOST))


_CODECS: dict[str, Unpack] = {
    "deflate": lambda data: zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, _MOST),
    "bzip2": lambda data: bz2.BZ2Decompressor().decompress(data, _MOST),
    "xz": lambda data: lzma.LZMADecompressor(memlimit=_XZ_MEMORY_BYTES).decompress(data, _MOST),
    "zstandard": _zstandard,
}
"""Each gives one byte more than a block may have if there are more."""
