"""Content codings of requests: what was compressed is unpacked, within the limit."""

import contextlib
import gzip
import tracemalloc
import zlib
from collections.abc import Callable

import brotli  # type: ignore[import-untyped]
import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from backend.ingest.encodings import (
    SUPPORTED,
    BrokenCodingError,
    UnknownCodingError,
    UnpackedTooLargeError,
    unpacked,
)

MOST = 1_048_575


def raw_deflated(body: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return stream.compress(body) + stream.flush()


CODINGS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress),
    ("x-gzip", gzip.compress),
    ("deflate", zlib.compress),
    ("deflate", raw_deflated),
    ("br", brotli.compress),
    ("zstd", zstd.compress),
]


@given(st.sampled_from(CODINGS), st.sampled_from(CODINGS), st.binary(max_size=2_000))
def test_neighbours_8_what_was_compressed_is_unpacked(
    one: tuple[str, Callable[[bytes], bytes]], other: tuple[str, Callable[[bytes], bytes]], body: bytes
) -> None:
    assert unpacked(one[1](body), one[0].upper(), MOST) == body
    assert unpacked(one[1](body), f"identity, {one[0]} ,", MOST) == body
    assert unpacked(other[1](one[1](body)), f"{one[0]}, {other[0]}", MOST) == body


def test_neighbours_8_without_a_coding_a_body_stays_as_it_is() -> None:
    assert unpacked(b"a", "identity", MOST) == unpacked(b"a", "", MOST) == b"a"


@pytest.mark.parametrize("coding", ["compress", "gzip;q=1", "br, lzma", "gzip, gzip, gzip", "ÿ"])
def test_neighbours_8_another_coding_is_refused_with_those_that_there_are(coding: str) -> None:
    with pytest.raises(UnknownCodingError) as refused:
        unpacked(b"", coding, MOST)
    assert all(name in str(refused.value) for name in SUPPORTED)


@pytest.mark.parametrize(("coding", "compress"), CODINGS)
def test_neighbours_8_the_limit_is_of_the_unpacked_body(coding: str, compress: Callable[[bytes], bytes]) -> None:
    assert len(unpacked(compress(b"x" * MOST), coding, MOST)) == MOST
    with pytest.raises(UnpackedTooLargeError, match="1,048,575"):
        unpacked(compress(b"x" * (MOST + 1)), coding, MOST)


@pytest.mark.parametrize(("coding", "compress"), CODINGS)
def test_neighbours_8_no_more_than_the_limit_is_ever_unpacked(coding: str, compress: Callable[[bytes], bytes]) -> None:
    bomb = compress(bytes(64 * 1024 * 1024))
    tracemalloc.start()
    try:
        with pytest.raises(UnpackedTooLargeError):
            unpacked(bomb, coding, MOST)
        assert tracemalloc.get_traced_memory()[1] < 16 * 1024 * 1024
    finally:
        tracemalloc.stop()


@given(st.sampled_from(CODINGS), st.binary(min_size=1, max_size=300), st.data())
def test_neighbours_8_a_body_that_ends_early_is_refused(
    coding: tuple[str, Callable[[bytes], bytes]], body: bytes, data: st.DataObject
) -> None:
    whole = coding[1](body)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(BrokenCodingError):
        unpacked(cut, coding[0], MOST)


@given(st.sampled_from(CODINGS), st.binary(max_size=300))
def test_neighbours_8_any_bytes_are_unpacked_or_refused(
    coding: tuple[str, Callable[[bytes], bytes]], body: bytes
) -> None:
    with contextlib.suppress(BrokenCodingError, UnpackedTooLargeError):
        assert len(unpacked(body, coding[0], MOST)) <= MOST


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_neighbours_8_files_of_several_parts_are_unpacked_whole(coding: str) -> None:
    compress = gzip.compress if coding == "gzip" else zstd.compress
    assert unpacked(compress(b"a") + compress(b"b"), coding, MOST) == b"ab"
    with pytest.raises(UnpackedTooLargeError):
        unpacked(b"".join(compress(bytes(400_000)) for _ in range(3)), coding, MOST)
    with pytest.raises(BrokenCodingError, match="parts"):
        unpacked(compress(b"") * 50_000, coding, MOST)


def test_neighbours_8_a_frame_that_asks_for_a_huge_window_is_refused() -> None:
    # Magic number, a header without content size, and a window of 128 MiB.
    with pytest.raises(BrokenCodingError):
        unpacked(b"\x28\xb5\x2f\xfd" + b"\x00" + bytes([17 << 3]) + b"\x01\x00\x00", "zstd", MOST)
