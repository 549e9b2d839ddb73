from collections import defaultdict
from collections.abc import Hashable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain import limits
from backend.domain.records import Record
from spark_jobs.streaming.window import Entry, PartitionWindow, Progress

NOTHING = Progress((), 0)


def record(name: object) -> Record:
    return Record(str(name), None, b"", [])


def taken_from(window: PartitionWindow) -> tuple[Progress | None, list[Record]]:
    """What may be committed: the progress, and the records."""
    progress, entries = window.take_done()
    return progress, [record for entry in entries for record in entry.records or ()]


def added(window: PartitionWindow, offset: int, key: Hashable) -> Entry:
    entry = window.add(offset)
    assert entry is not None
    entry.key = key
    return entry


def test_a_message_that_takes_long_holds_back_only_its_key() -> None:
    window = PartitionWindow(NOTHING)
    slow, other, same_key, last = (added(window, offset, key) for offset, key in zip((5, 7, 8, 9), "abac", strict=True))
    window.finish(other, [record("b")])
    window.finish(same_key, [record("a2")])
    assert taken_from(window) == (Progress((5,), 8), [record("b")])
    assert not window.has_finished
    window.finish(slow, [record("a1")])
    assert window.has_finished
    assert taken_from(window) == (Progress((), 9), [record("a1"), record("a2")])
    window.finish(last, [])
    assert taken_from(window) == (Progress((), 10), [])
    assert len(window) == 0


def test_progress_survives_being_committed() -> None:
    for progress in (Progress((), 7), Progress((3,), 4), Progress((3, 9, 200_000), 300_000)):
        assert Progress.of(progress.offset, progress.metadata) == progress
    assert Progress((), 7).metadata == ""
    for foreign in ("", None, "leader epoch 7", "AAAA", "kw=="):
        assert Progress.of(7, foreign) == Progress((), 7)


@given(st.data(), st.integers(1, 40))
def test_through_any_order_and_restart_each_message_is_taken_once_and_in_order_of_its_key(
    data: st.DataObject, messages: int
) -> None:
    keys = data.draw(st.lists(st.sampled_from("abc") | st.uuids(), min_size=messages, max_size=messages))
    committed, taken = NOTHING, []
    for last in (False, False, True):
        committed = Progress.of(committed.offset, committed.metadata)
        window = PartitionWindow(committed)
        read = range(committed.offset, messages if last else data.draw(st.integers(committed.offset, messages)))
        entries = []
        for offset in read:
            entry = window.add(offset)
            if entry is not None:
                entry.key = keys[offset]
                entries.append(entry)
        finishing = data.draw(st.permutations(entries))
        for entry in finishing if last else finishing[: len(finishing) // 2]:
            window.finish(entry, [record(entry.offset)])
            if data.draw(st.booleans()) or (last and entry is finishing[-1]):
                progress, records = taken_from(window)
                taken += [int(r.topic) for r in records]
                committed = progress or committed
    assert sorted(taken) == list(range(messages))
    assert committed == Progress((), messages)
    of_key = defaultdict(list)
    for offset in taken:
        of_key[keys[offset]].append(offset)
    assert all(offsets == sorted(offsets) for offsets in of_key.values())


def test_what_is_committed_stays_small() -> None:
    window = PartitionWindow(NOTHING)
    for offset in range(0, 2_000_000, 200):
        entry = added(window, offset, offset)
        if offset % 400:
            window.finish(entry, [])
    progress, _ = window.take_done()
    assert progress is not None
    assert len(progress.open) > 500
    assert len(progress.metadata) <= 4096


@pytest.mark.parametrize(
    "large",
    [Record("t", None, bytes(1024 * 1024), []), Record("t", None, b"", [("firehose_index", bytes(1024 * 1024))])],
    ids=["bodies", "headers"],
)
def test_neighbours_2_a_transaction_is_not_much_larger_than_the_limit(large: Record) -> None:
    window = PartitionWindow(NOTHING)
    for offset in range(200):
        window.finish(added(window, offset, offset), [large])
    sizes = []
    while window.has_finished:
        _, records = taken_from(window)
        sizes.append(len(records))
    assert sum(sizes) == 200
    assert limits.TRANSACTION_BYTES <= max(sizes) * large.size <= limits.TRANSACTION_BYTES + 2 * large.size
