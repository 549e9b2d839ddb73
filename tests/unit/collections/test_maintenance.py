"""What readers see while a collection is merged, emptied and reset, and what is left on disk."""

import os
import threading
import time
from pathlib import Path

import pytest

from backend.collections.errors import FencedError, OffsetOutOfRangeError
from backend.collections.location import Location
from backend.collections.maintenance import (
    Retention,
    apply_retention,
    merge,
    mergeable,
    reduce_to_last,
    reset,
    vacuum,
)
from backend.collections.reader import CollectionReader
from backend.collections.table import Segment, Table
from backend.collections.writer import CollectionWriter, NewDocument
from tests.unit.collections.test_log import documents, location, read_all

__all__ = ["location"]

FOREVER = Retention()
DAY = 86_400.0


def fill(location: Location, appends: int, *, partition: int = 0, first: int = 0, size: int = 1) -> None:
    writer = CollectionWriter(Table(location), f"topic/{partition}")
    for number in range(first, first + appends):
        writer.append(documents(range(number * 10, number * 10 + 10), partition=partition, size=size), number * 10 + 10)


def values(reader: CollectionReader, partition: int = 0) -> list[int]:
    return [int(document.value) for document in read_all(reader, partition)]


def test_small_files_are_merged_and_nothing_else_changes(location: Location) -> None:
    fill(location, 20)
    fill(location, 3, partition=1)
    before = CollectionReader(location)
    documents = read_all(before)
    assert merge(Table(location), FOREVER) == 20
    after = CollectionReader(location)
    assert (len(after.segments(0)), len(after.segments(1))) == (1, 3)
    assert read_all(after) == documents
    assert read_all(before) == documents  # whose files are kept for a day
    assert merge(Table(location), FOREVER) == 0
    fill(location, 2, first=20)
    assert values(CollectionReader(location)) == list(range(220))


def test_a_reader_of_files_that_are_gone_reads_those_that_took_their_place(location: Location, tmp_path: Path) -> None:
    fill(location, 20)
    reader = CollectionReader(location)
    merge(Table(location), FOREVER)
    for segment in reader.segments(0):
        (tmp_path / "orders" / segment.path).unlink()
    assert values(reader) == list(range(200))


def segment(first: int, size: int, time: int = 0) -> Segment:
    return Segment(first, first + 9, f"{first}", size, 10, time, time)


def test_a_large_file_is_not_written_again_for_small_ones() -> None:
    large, small = segment(0, 10_000_000), [segment(number * 10, 1000) for number in range(1, 9)]
    assert mergeable([large, *small], FOREVER) == [small]
    assert mergeable(small[:7], FOREVER) == []


def test_a_merged_file_is_small_beside_what_is_kept() -> None:
    segments = [segment(number * 10, 100_000, number * 60_000) for number in range(200)]
    for retention in (Retention(bytes=40_000_000), Retention(hours=10)):
        runs = mergeable(segments, retention)
        assert runs
        assert max(sum(one.bytes for one in run) for run in runs) <= 2_000_000 or retention.bytes is None
        assert max(run[-1].newest - run[0].oldest for run in runs) <= 30 * 60_000 or retention.hours is None


def test_retention_by_age_removes_the_oldest_and_watermarks_never_fall(
    location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr("time.time_ns", lambda: int((now - 2 * DAY) * 1e9))
    fill(location, 2)
    monkeypatch.setattr("time.time_ns", lambda: int(now * 1e9))
    fill(location, 1, first=2)
    reader = CollectionReader(location)
    assert apply_retention(Table(location), Retention(hours=72)) == 0
    assert apply_retention(Table(location), Retention(hours=24)) == 2
    reader.refresh()
    assert (reader.start_offset(0), reader.end_offset(0)) == (20, 30)
    assert values(reader) == list(range(20, 30))
    with pytest.raises(OffsetOutOfRangeError, match="from 20 to 30"):
        reader.read(0, 19, 1000)
    assert apply_retention(Table(location), Retention(hours=24), now + 2 * DAY) == 1
    reader.refresh()
    assert (reader.start_offset(0), reader.end_offset(0)) == (30, 30)
    assert reader.read(0, 30, 1000) == []
    fill(location, 1, first=3)
    reader.refresh()
    assert (reader.start_offset(0), reader.end_offset(0)) == (30, 40)


def test_retention_by_size_keeps_the_newest(location: Location) -> None:
    fill(location, 10, size=1000)
    fill(location, 10, partition=1, size=1000)
    reader = CollectionReader(location)
    kept = sum(segment.bytes for partition in range(2) for segment in reader.segments(partition)) // 2
    apply_retention(Table(location), Retention(bytes=kept))
    reader.refresh()
    left = [segment for partition in range(2) for segment in reader.segments(partition)]
    assert 0 < sum(segment.bytes for segment in left) <= kept
    assert reader.end_offset(0) == reader.end_offset(1) == 100


def test_a_reset_raises_the_epoch_and_offsets_go_on(location: Location) -> None:
    fill(location, 2)
    fill(location, 1, partition=1)
    reader = CollectionReader(location)
    assert reset(Table(location)) == 1
    reader.refresh()
    assert reader.leader_epoch == 1
    assert [(reader.start_offset(p), reader.end_offset(p)) for p in range(2)] == [(20, 20), (10, 10)]
    fill(location, 1, first=2)
    assert reset(Table(location)) == 2
    fill(location, 1, first=3)
    reader.refresh()
    assert values(reader) == list(range(30, 40))
    assert [reader.epoch_end_offset(0, epoch) for epoch in (0, 1, 2, 3)] == [20, 30, 40, 40]
    assert [reader.epoch_end_offset(1, epoch) for epoch in (0, 1, 2)] == [10, 10, 10]


def test_changes_at_the_same_time_lose_and_repeat_nothing(location: Location) -> None:
    """Two who merge, and a writer; then a reset between the reading and the commit of a merge."""
    stop = threading.Event()
    merged = []

    def merge_until_stopped() -> None:
        while not stop.is_set():
            try:
                merged.append(merge(Table(location), FOREVER))
            except FencedError:
                time.sleep(0.02)

    threads = [threading.Thread(target=merge_until_stopped) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        fill(location, 60)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert sum(merged) > 0
    assert values(CollectionReader(location)) == list(range(600))


def test_a_merge_brings_nothing_back_that_a_reset_removed(location: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    from backend.collections import maintenance

    fill(location, 10)
    write = maintenance.add_data

    def reset_meanwhile(*arguments: object, **keywords: object) -> object:
        reset(Table(location))
        return write(*arguments, **keywords)  # type: ignore[arg-type]

    monkeypatch.setattr(maintenance, "add_data", reset_meanwhile)
    with pytest.raises(FencedError):
        merge(Table(location), FOREVER)
    assert values(CollectionReader(location)) == []


def test_unused_files_are_deleted_after_a_day(location: Location, tmp_path: Path) -> None:
    folder = tmp_path / "orders" / "partition=0"
    fill(location, 20)
    merge(Table(location), FOREVER)
    orphan = folder / "00000000000000000000-written-by-one-that-was-killed.parquet"
    orphan.write_bytes(b"")
    assert vacuum(Table(location)) == 0
    two_days_ago = time.time() - 2 * DAY
    os.utime(orphan, (two_days_ago, two_days_ago))
    assert vacuum(Table(location)) == 1
    assert len(list(folder.glob("*.parquet"))) == 21
    assert values(CollectionReader(location)) == list(range(200))


def append_keyed(location: Location, keys: str, *, deleted: str = "") -> None:
    """A file in partition 0 with a document for each letter, whose value is its offset."""
    writer = CollectionWriter(Table(location), "keyed")
    first = writer.position() or 0
    documents = [
        NewDocument(first + at, 0, key.encode(), b"%d" % (first + at), deleted=key in deleted)
        for at, key in enumerate(keys)
    ]
    writer.append(documents, first + len(keys))


def keyed(reader: CollectionReader, offset: int = 0) -> list[tuple[int, bytes | None]]:
    return [(document.offset, document.key) for document in reader.read(0, offset, 100_000)]


def test_only_the_last_document_of_each_key_is_kept(location: Location) -> None:
    for keys in ("abc", "abd", "d", "ae"):
        append_keyed(location, keys)
    # The last file is too new; "a" in it does not make the one before superfluous for those who read in between.
    assert reduce_to_last(Table(location), [7, 0], deletions_until=0) == 3
    reader = CollectionReader(location)
    assert keyed(reader) == [(2, b"c"), (3, b"a"), (4, b"b"), (6, b"d"), (7, b"a"), (8, b"e")]
    # A consumer may be anywhere between them, and the log still begins where it did.
    assert keyed(reader, 5) == keyed(reader)[3:]
    assert (reader.start_offset(0), reader.end_offset(0)) == (0, 9)
    assert reduce_to_last(Table(location), [7, 0], deletions_until=0) == 0
    append_keyed(location, "f")
    assert [document.offset for document in CollectionReader(location).read(0, 9, 1000)] == [9]
    assert merge(Table(location), FOREVER) == 0


def test_old_deletions_go_but_the_last_document_stays(location: Location) -> None:
    append_keyed(location, "abcb", deleted="ab")
    append_keyed(location, "a", deleted="a")
    later = int(time.time() * 1000) + 1000
    assert reduce_to_last(Table(location), [5, 0], deletions_until=0) == 2
    append_keyed(location, "cc")
    assert reduce_to_last(Table(location), [7, 0], deletions_until=later) == 4
    reader = CollectionReader(location)
    assert keyed(reader) == [(6, b"c")]
    assert (reader.start_offset(0), reader.end_offset(0)) == (0, 7)
    append_keyed(location, "d", deleted="d")
    reduce_to_last(Table(location), [8, 0], deletions_until=later)
    reader.refresh()
    assert keyed(reader) == [(6, b"c"), (7, b"d")]
