"""Encoded batches on disk."""

import pytest

from backend.kafka.gateway.batches import Batch
from backend.kafka.gateway.encoded_files import EncodedFiles


def run_of(base: int, count: int = 3, size: int = 1000) -> list[Batch]:
    """Batches of ten offsets each, whose bytes tell where they begin."""
    return [Batch(at, at + 9, str(at).encode().ljust(size)) for at in range(base, base + count * 10, 10)]


def test_what_is_kept_is_read_from_any_of_its_offsets() -> None:
    files = EncodedFiles(1_000_000)
    files.put("log", run_of(100))
    files.put("log", run_of(0))
    files.put("other", run_of(100, 1))
    assert files.get("log", 100) == run_of(100)
    assert files.get("log", 115) == run_of(100)[1:]
    assert files.get("log", 129) == run_of(100)[2:]
    assert files.get("log", 5) == run_of(0)
    assert files.get("other", 109) == run_of(100, 1)
    for offset in (30, 99, 130):
        assert files.get("log", offset) == []
        assert not files.has("log", offset)
    assert files.get("unknown", 100) == []


def test_the_oldest_makes_room() -> None:
    files = EncodedFiles(160_000)
    for number in range(100):
        files.put("log", run_of(number * 100))
    kept = [number for number in range(100) if files.has("log", number * 100)]
    assert kept == list(range(kept[0], 100))
    assert 30 < len(kept) < 60
    assert files.get("log", 9900) == run_of(9900)


def test_nothing_is_kept_where_nothing_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = EncodedFiles(0)
    nothing.put("log", run_of(0))
    assert not nothing.has("log", 0)
    full = EncodedFiles(1_000_000)
    monkeypatch.setattr("tempfile.tempdir", "/nonexistent")
    full.put("log", run_of(0))
    assert full.get("log", 0) == []
