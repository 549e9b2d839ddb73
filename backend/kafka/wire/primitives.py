"""Readers and writers of the primitive types: Kafka protocol guide, "Protocol Primitive Types"."""

import struct

Buffer = bytes | bytearray | memoryview

Parts = list[Buffer]
"""A frame as the buffers that it consists of."""


class MalformedError(ValueError):
    """The bytes do not follow the protocol."""


_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def read_uvarint(data: Buffer, at: int) -> tuple[int, int]:
    value = data[at]
    at += 1
    if value < 0x80:
        return value, at
    value &= 0x7F
    for shift in (7, 14, 21, 28):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise MalformedError("A variable-length integer has more than five bytes.")


def write_uvarint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _end(data: Buffer, at: int, length: int) -> int:
    end = at + length
    if end > len(data):
        raise MalformedError("A length reaches beyond the end of the frame.")
    return end


def read_length16(data: Buffer, at: int) -> tuple[int, int]:
    """The length of a string; -1 for null."""
    return _INT16.unpack_from(data, at)[0], at + 2


def read_length32(data: Buffer, at: int) -> tuple[int, int]:
    """The length of bytes or of an array; -1 for null."""
    return _INT32.unpack_from(data, at)[0], at + 4


def read_compact_length(data: Buffer, at: int) -> tuple[int, int]:
    value, at = read_uvarint(data, at)
    return value - 1, at


def read_count32(data: Buffer, at: int) -> tuple[int, int]:
    count, at = read_length32(data, at)
    return _count(data, at, count), at


def read_compact_count(data: Buffer, at: int) -> tuple[int, int]:
    value, at = read_uvarint(data, at)
    return _count(data, at, value - 1), at


def _count(data: Buffer, at: int, count: int) -> int:
    """Every element takes at least one byte, so a count beyond the frame is rejected before anything is allocated."""
    if count > len(data) - at:
        raise MalformedError("An array claims more elements than its frame has bytes.")
    return count


def read_string(data: Buffer, at: int) -> tuple[str, int]:
    text, at = read_nullable_string(data, at)
    return _present(text), at


def read_nullable_string(data: Buffer, at: int) -> tuple[str | None, int]:
    length, at = read_length16(data, at)
    return _text(data, at, length)


def read_compact_string(data: Buffer, at: int) -> tuple[str, int]:
    text, at = read_compact_nullable_string(data, at)
    return _present(text), at


def read_compact_nullable_string(data: Buffer, at: int) -> tuple[str | None, int]:
    length, at = read_compact_length(data, at)
    return _text(data, at, length)


def _text(data: Buffer, at: int, length: int) -> tuple[str | None, int]:
    if length < 0:
        return None, at
    end = _end(data, at, length)
    return str(data[at:end], "utf-8"), end


def _present(text: str | None) -> str:
    if text is None:
        raise MalformedError("A string that must not be null is null.")
    return text


def read_blob(data: Buffer, at: int, length: int) -> tuple[bytes | None, int]:
    if length < 0:
        return None, at
    end = _end(data, at, length)
    return bytes(data[at:end]), end


def read_view(data: Buffer, at: int, length: int) -> tuple[memoryview | None, int]:
    """A view into the frame, not a copy: records are forwarded and never parsed."""
    if length < 0:
        return None, at
    end = _end(data, at, length)
    return memoryview(data)[at:end], end


def read_numbers(data: Buffer, at: int, count: int, code: str) -> tuple[list[int], int]:
    size = struct.calcsize(">" + code)
    end = _end(data, at, count * size)
    return list(struct.unpack_from(f">{count}{code}", data, at)), end


def write_string(out: bytearray, text: str | None) -> None:
    if text is None:
        out += b"\xff\xff"
        return
    data = text.encode()
    out += _INT16.pack(len(data))
    out += data


def write_compact_string(out: bytearray, text: str | None) -> None:
    if text is None:
        out.append(0)
        return
    data = text.encode()
    if len(data) < 127:
        out.append(len(data) + 1)
    else:
        write_uvarint(out, len(data) + 1)
    out += data


def write_length32(out: bytearray, length: int) -> None:
    out += _INT32.pack(length)


def write_compact_length(out: bytearray, length: int) -> None:
    write_uvarint(out, length + 1)
