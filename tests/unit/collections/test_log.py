"""What a reader sees of what writers append."""

import threading
from pathlib import Path

import pytest
from deltalake import DeltaTable

from backend.collections.documents import Document
from backend.collections.errors import CollectionMissingError, OffsetOutOfRangeError
from backend.collections.location import Location
from backend.collections.reader import CollectionReader
from backend.collections.table import Table
from backend.collections.writer import CollectionWriter, NewDocument


@pytest.fixture
def location(tmp_path: Path) -> Location:
    location = Location.of(str(tmp_path / "orders"))
    Table.create(location, partitions=2, name="orders")
    return location


def documents(positions: range, *, partition: int = 0, size: int = 1) -> list[NewDocument]:
    return [NewDocument(number, partition, b"key", b"%d" % number * size) for number in positions]


def read_all(reader: CollectionReader, partition: int = 0, max_bytes: int = 1000) -> list[Document]:
    offset, found = reader.start_offset(partition), []
    while documents := reader.read(partition, offset, max_bytes):
        found += documents
        offset = documents[-1].offset + 1
    assert offset == reader.end_offset(partition)
    return found


def test_an_empty_collection(location: Location) -> None:
    reader = CollectionReader(location)
    assert (reader.partitions, reader.leader_epoch) == (2, 0)
    assert (reader.start_offset(1), reader.end_offset(1)) == (0, 0)
    assert reader.read(1, 0, 1000) == []
    assert reader.offset_for_timestamp(1, 0) is None
    assert reader.refresh() is False


def test_documents_keep_what_they_were(location: Location) -> None:
    new = [
        NewDocument(0, 1, None, b"", (("a", b"\x00"), ("a", b""))),
        NewDocument(1, 1, b"", b"\xff", deleted=True),
        NewDocument(2, 1, "schlüssel".encode(), b"{}"),
    ]
    CollectionWriter(Table(location), "topic/0").append(new, 3)
    found = read_all(CollectionReader(location), 1)
    assert [document.offset for document in found] == [0, 1, 2]
    assert [(d.key, d.value, d.headers, d.deleted) for d in found] == [tuple(document)[2:] for document in new]


def test_repeated_messages_are_appended_once(location: Location) -> None:
    writer = CollectionWriter(Table(location), "topic/0")
    assert writer.position() is None
    assert writer.append(documents(range(10)), 10) == 10
    assert writer.append(documents(range(10)), 10) == 0
    assert CollectionWriter(Table(location), "topic/0").append(documents(range(5, 15)), 15) == 5
    assert writer.position() == 15
    assert CollectionWriter(Table(location), "topic/1").append(documents(range(3)), 3) == 3
    values = [int(document.value) for document in read_all(CollectionReader(location))]
    assert values == [*range(15), *range(3)]


def test_writers_that_race_append_each_document_once(location: Location) -> None:
    """Two owners of one source, as when a partition is moved while its former owner still writes, and other sources."""

    def write(source: str) -> None:
        writer = CollectionWriter(Table(location), source)
        for start in range(0, 100, 10):
            writer.append(documents(range(start, start + 10), partition=start // 10 % 2), start + 10)

    threads = [threading.Thread(target=write, args=(source,)) for source in ("a", "a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reader = CollectionReader(location)
    for partition in range(2):
        found = read_all(reader, partition)
        assert [document.offset for document in found] == list(range(100))
        times = [document.timestamp for document in found]
        assert times == sorted(times)


def test_reading_stops_at_its_bytes_and_gives_one_document_at_least(location: Location) -> None:
    CollectionWriter(Table(location), "topic/0").append(documents(range(10, 20), size=50), 20)
    reader = CollectionReader(location)
    assert [len(reader.read(0, 0, size)) for size in (1, 103, 206, 100_000)] == [1, 1, 2, 10]
    assert reader.read(0, 7, 1)[0].offset == 7


def test_offsets_outside_are_refused(location: Location) -> None:
    CollectionWriter(Table(location), "topic/0").append(documents(range(3)), 3)
    reader = CollectionReader(location)
    assert reader.read(0, 3, 1000) == []
    for offset in (-1, 4):
        with pytest.raises(OffsetOutOfRangeError, match="from 0 to 3"):
            reader.read(0, offset, 1000)


def test_offsets_are_found_by_time(location: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = CollectionWriter(Table(location), "topic/0")
    for position, milliseconds in enumerate((1000, 3000, 2000, 5000)):  # the clock goes back once
        monkeypatch.setattr("time.time_ns", lambda now=milliseconds: now * 1_000_000)
        writer.append(documents(range(position, position + 1)), position + 1)
    reader = CollectionReader(location)
    found = [reader.offset_for_timestamp(0, time) for time in (0, 1000, 1001, 3000, 3001, 5000, 5001)]
    assert found == [(0, 1000), (0, 1000), (1, 3000), (1, 3000), (3, 5000), (3, 5000), None]


def test_a_reader_goes_on_to_what_is_new(location: Location) -> None:
    reader = CollectionReader(location)
    writer = CollectionWriter(Table(location), "topic/0")
    writer.append(documents(range(3)), 3)
    assert reader.end_offset(0) == 0
    assert reader.refresh() is True
    assert reader.end_offset(0) == 3


def test_a_collection_that_is_deleted_is_missing(location: Location, tmp_path: Path) -> None:
    CollectionWriter(Table(location), "topic/0").append(documents(range(3)), 3)
    reader = CollectionReader(location)
    (tmp_path / "orders").rename(tmp_path / "elsewhere")
    for use in (reader.refresh, lambda: reader.read(0, 0, 1000), lambda: CollectionReader(location)):
        with pytest.raises(CollectionMissingError, match="no collection"):
            use()


def test_any_reader_of_delta_lake_reads_the_table(location: Location) -> None:
    writer = CollectionWriter(Table(location), "topic/0")
    for partition in range(2):
        writer.append(documents(range(partition * 5, partition * 5 + 5), partition=partition), partition * 5 + 5)
    rows = DeltaTable(location.uri).to_pyarrow_table(filters=[("partition", "=", 1), ("offset", ">=", 3)]).to_pylist()
    assert sorted(rows[0]) == ["deleted", "headers", "key", "offset", "partition", "timestamp", "value"]
    assert sorted((row["partition"], row["offset"], row["value"]) for row in rows) == [(1, 3, b"8"), (1, 4, b"9")]
