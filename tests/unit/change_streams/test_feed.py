"""Collections as sources of a change stream."""

from pathlib import Path

import pytest

from backend.change_streams.feed import Feed, source_name
from backend.collections.documents import Document
from backend.collections.location import Location
from backend.collections.maintenance import Retention, apply_retention, reset
from backend.collections.reader import CollectionReader
from backend.collections.table import Table, source_id
from backend.collections.writer import CollectionWriter, NewDocument


class Source:
    """A collection with two partitions, and the log of a stream that it feeds."""

    def __init__(self, folder: Path) -> None:
        self.table = Table.create(Location.of(str(folder / "source")), partitions=2, name="source")
        self.log = Location.of(str(folder / "log"))
        Table.create(self.log, partitions=3, name="log")
        self._written = 0

    def write(self, partition: int, *keys: bytes, deleted: bool = False) -> None:
        documents = [
            NewDocument(self._written + number, partition, key, b'{"key":"%s"}' % key, deleted=deleted)
            for number, key in enumerate(keys)
        ]
        self._written += len(keys)
        CollectionWriter(self.table, "test").append(documents, self._written)

    def feed(self, *, deltas: bool = False, refused: bytes = b"") -> Feed:
        """A new one, as after a crash."""

        def check(document: Document) -> None:
            if refused and document.key == refused:
                raise ValueError("It does not fit.")

        return Feed("source", CollectionReader(self.table.location), Table(self.log), check, deltas=deltas)

    def take_all(self, *, deltas: bool = False) -> None:
        feed = self.feed(deltas=deltas)
        while feed.take():
            pass

    def taken(self) -> list[tuple[bytes | None, bool]]:
        """Keys, in the order of each partition of the log."""
        log = CollectionReader(self.log)
        documents = [log.documents(number, 0, log.end_offset(number)) for number in range(log.partitions)]
        return [(document.key, document.deleted) for part in documents for document in part]


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path)


def test_each_document_is_taken_over_once(source: Source) -> None:
    source.write(0, b"a", b"b", b"a")
    source.take_all()
    source.write(1, b"c")
    source.write(0, b"b", deleted=True)
    source.take_all()
    source.take_all()
    assert sorted(source.taken()) == [(b"a", False), (b"a", False), (b"b", False), (b"b", True), (b"c", False)]
    assert source.taken().index((b"b", False)) < source.taken().index((b"b", True))


def test_a_reset_deletes_what_came_from_the_collection(source: Source) -> None:
    source.write(0, b"a", b"b", b"gone")
    source.write(0, b"gone", deleted=True)
    CollectionWriter(Table(source.log), "output").append([NewDocument(0, 0, b"other", b"{}")], 1)
    source.take_all()
    reset(source.table)
    source.write(1, b"b")
    before = len(source.taken())
    for _ in range(2):
        source.take_all()
    new = [document for document in source.taken()]
    assert len(new) == before + 3
    last = dict(new)
    assert last == {b"a": True, b"b": False, b"gone": True, b"other": False}
    assert new.count((b"b", True)) == 1, "It was deleted, and came again."


def test_differences_cannot_be_taken_back_by_a_reset(source: Source) -> None:
    reset(source.table)
    source.write(0, b"a")
    source.take_all(deltas=True)
    source.take_all(deltas=True)
    reset(source.table)
    with pytest.raises(ValueError, match="make a new change stream"):
        source.take_all(deltas=True)


def test_what_does_not_fit_is_named_and_nothing_after_it_is_taken(source: Source) -> None:
    source.write(0, b"a")
    source.write(0, b"b", b"c")
    feed = source.feed(refused=b"b")
    assert feed.take()
    with pytest.raises(ValueError, match="Document 1 of partition 0"):
        feed.take()
    assert source.taken() == [(b"a", False)]
    source.take_all()
    assert sorted(key or b"" for key, _ in source.taken()) == [b"a", b"b", b"c"]


def test_retention_keeps_what_is_needed_and_a_loss_is_reported(source: Source) -> None:
    source.write(0, b"a")
    source.take_all()
    for key in (b"b", b"c"):
        source.write(0, key)
    position = Table(source.log).transaction(source_id(source_name("source", 0)))
    assert position == 1
    later = 4_000_000_000.0
    assert apply_retention(source.table, Retention(hours=1), later, needed={0: position}) == 1
    source.table.refresh()
    assert source.table.snapshot().start(0) == 1
    assert apply_retention(source.table, Retention(hours=1), later) == 2
    source.write(0, b"d")
    with pytest.raises(ValueError, match="from 1 to 2 of partition 0"):
        source.take_all()
