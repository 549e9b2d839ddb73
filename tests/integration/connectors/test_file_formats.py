"""Files of every format, read from a local folder: one implementation serves all stores."""

import gzip
import io
import os
import time
import tracemalloc
import uuid
from contextlib import aclosing
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow
import pytest
from pyarrow import parquet

from backend.connectors.parts.files import reading, sources
from backend.connectors.parts.files.progress import Progress
from backend.connectors.parts.files.store import StoredFile
from backend.domain import json
from backend.domain.capabilities import DeliveryError, InputRecord
from tests.infra import FILES_ROOT
from tests.integration.connectors.suites import DOCUMENTS, input_reader, opened

TEXT = "São Paulo – 東京 🚆 'single' \"double\", comma; line\nbreak\ttab"
NUMBER = Decimal("12345678901234567890.123456789")
MOMENT = datetime(2026, 10, 25, 2, 30, 0, 123456, timezone(timedelta(hours=2)))


async def read_all(reader: Any, breakpoint: Any = None) -> tuple[list[InputRecord], Any]:
    """The records of one reading, and where the next one begins."""
    records: list[InputRecord] = []
    async with opened(reader):
        async for batch in reader.read(breakpoint):
            records += batch.records
            breakpoint = json.loads(json.dumps(batch.breakpoint))
    return records, breakpoint


class Folder:
    """Files and what is read of them."""

    def __init__(self) -> None:
        self.name = uuid.uuid4().hex
        self.path = FILES_ROOT / self.name
        self.path.mkdir()
        self.breakpoint: Any = None

    def put(self, name: str, body: bytes, age: float = 0) -> None:
        path = self.path / name
        path.write_bytes(body)
        moment = time.time() - age
        os.utime(path, (moment, moment))

    def reader(self, file_format: dict[str, Any], **options: Any) -> Any:
        options = {"format": file_format, "settle_seconds": 0, **options}
        return input_reader("local_files", {"folder": self.name}, options)

    async def read(self, file_format: dict[str, Any], **options: Any) -> list[Any]:
        """The documents of one turn, which begins where the former one ended."""
        records, self.breakpoint = await read_all(self.reader(file_format, **options), self.breakpoint)
        return [json.loads(record.body) for record in records]

    async def failure(self, file_format: dict[str, Any], **options: Any) -> DeliveryError:
        with pytest.raises(DeliveryError) as failed:
            await self.read(file_format, **options)
        return failed.value


@pytest.fixture
def folder() -> Folder:
    return Folder()


def compressed(kind: str, body: bytes) -> bytes:
    return (
        body
        if kind == "none"
        else pyarrow.compress(body, kind, asbytes=True)
        if kind == "zstd"
        else gzip.compress(body)
    )


every_compression = pytest.mark.parametrize("kind", ["none", "gzip", "zstd"])
CSV = {"type": "csv"}
LINES = {"type": "json_lines"}
JSON = {"type": "json"}
PARQUET = {"type": "parquet"}
AVRO = {"type": "avro"}


@every_compression
async def test_csv(folder: Folder, kind: str) -> None:
    text = TEXT.replace('"', '""')
    body = f'id,text,n,flag,document\r\n1,"{text}",{NUMBER},true,"{{""a"": [1]}}"\r\n{2**63},,,,\r\n\r\n'
    folder.put("a.csv", compressed(kind, body.encode()))
    types = {"id": "integer", "n": "number", "flag": "boolean", "document": "json"}
    assert await folder.read({"type": "csv", "types": types}) == [
        {"id": 1, "text": TEXT, "n": NUMBER, "flag": True, "document": {"a": [1]}},
        {"id": 2**63, "text": "", "n": None, "flag": None, "document": None},
    ]


async def test_csv_without_header_and_with_another_dialect(folder: Folder) -> None:
    folder.put("a.csv", "1;'São; ''Paulo'''\n2;x\n".encode("windows-1252"))
    dialect = {"type": "csv", "delimiter": ";", "quote": "'", "encoding": "windows-1252", "header": False}
    assert await folder.read(dialect) == [
        {"column_1": "1", "column_2": "São; 'Paulo'"},
        {"column_1": "2", "column_2": "x"},
    ]
    folder.put("b.csv", '\ufeff"1\t2\n'.encode())
    tabs = {"type": "csv", "delimiter": "tab", "quote": "", "header": False, "columns": ["a", "b"]}
    assert await folder.read(tabs) == [{"a": '"1', "b": "2"}]


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"a,b\n1,2\n1", "line 3: the number of values is 1 instead of 2"),
        (b"a,b\n1\n1,2\n", "line 2: the number of values is 1 instead of 2"),
        (b'a,b\n1,2\n1,"x\n', "unexpected end of data"),
        (b"a,b\n1,2\n1,\xff\n", "can't decode byte"),
        (b"a,b\nx,2\n1,2\n", "line 2: the value of column 'a' is not of the type integer"),
        (b"a,a\n1,2\n", "several columns with the name 'a'"),
        (b"b,c\n1,2\n", "no column 'a'"),
        (gzip.compress(b"a,b\n1,2\n" * 1000)[:-10], "Truncated compressed stream"),
    ],
)
async def test_a_csv_file_that_is_at_fault_is_named(folder: Folder, body: bytes, named: str) -> None:
    folder.put("good.csv", b"a,b\n0,0\n", age=10)
    folder.put("bad.csv", body)
    csv = {"type": "csv", "types": {"a": "integer"}}
    assert (await folder.read(csv))[0] == {"a": 0, "b": "0"}
    # What was read before the fault is kept, so that nothing is repeated.
    failure = await folder.failure(csv)
    assert failure.reason == "bad_file"
    assert "File bad.csv cannot be read after row" in str(failure)
    assert named in str(failure)
    folder.put("next.csv", b"a,b\n9,9\n")
    assert await folder.read(csv, bad_files="skip") == [{"a": 9, "b": "9"}]
    assert await folder.read(csv) == []


async def test_a_csv_row_that_does_not_fit_is_set_aside_and_the_others_are_read(folder: Folder) -> None:
    folder.put("a.csv", b"a,b\n1,2\nx,y\n3\n4,5,6\n7,8\n")
    reader = folder.reader({"type": "csv", "types": {"a": "integer"}})
    records, breakpoint = await read_all(reader)
    assert [(json.loads(record.body), record.fault) for record in records] == [
        ({"a": 1, "b": "2"}, ""),
        ({"a": "x", "b": "y"}, "File a.csv, line 3: the value of column 'a' is not of the type integer."),
        (["3"], "File a.csv, line 4: the number of values is 1 instead of 2."),
        (["4", "5", "6"], "File a.csv, line 5: the number of values is 3 instead of 2."),
        ({"a": 7, "b": "8"}, ""),
    ]
    assert await read_all(reader, breakpoint) == ([], breakpoint)


@every_compression
async def test_json_lines(folder: Folder, kind: str) -> None:
    body = b"\r\n".join(json.dumps(document) for document in DOCUMENTS) + b"\n\n"
    folder.put("a.jsonl", compressed(kind, body))
    assert await folder.read(LINES) == [json.loads(json.dumps(document)) for document in DOCUMENTS]


async def test_a_json_line_in_the_midst_that_is_broken_is_left_to_the_lane(folder: Folder) -> None:
    folder.put("a.jsonl", b'{"n": 1}\n{"n": \n{"n": 3}')
    records, _ = await read_all(folder.reader(LINES))
    assert [record.body for record in records] == [b'{"n": 1}', b'{"n":', b'{"n": 3}']


@pytest.mark.parametrize("body", [b'{"n": 1}\n{"n": 2', b"id,name\n1,2\n", b"\x00\x01PAR1"])
async def test_a_file_of_json_lines_that_is_incomplete_or_something_else_is_named(folder: Folder, body: bytes) -> None:
    folder.put("a.jsonl", body)
    if body.startswith(b"{"):
        assert await folder.read(LINES) == [{"n": 1}]
    failure = await folder.failure(LINES)
    assert failure.reason == "bad_file"
    assert "a.jsonl" in str(failure)


@every_compression
async def test_json_arrays_and_single_documents(folder: Folder, kind: str) -> None:
    folder.put("array.json", compressed(kind, b" \n" + json.dumps(list(DOCUMENTS))), age=9)
    folder.put("empty.json", compressed(kind, b"[]"), age=8)
    folder.put("one.json", compressed(kind, json.dumps({"order": NUMBER, "big": 2**64 + 1})), age=7)
    expected = [json.loads(json.dumps(document)) for document in DOCUMENTS]
    assert await folder.read(JSON) == [*expected, {"order": NUMBER, "big": 2**64 + 1}]


@pytest.mark.parametrize("body", [b'[{"n": 1}, {"n": 2}', b'[{"n": 1}] x', b'{"n": 1', b"", b"[1, }"])
async def test_a_json_file_that_is_incomplete_is_named(folder: Folder, body: bytes) -> None:
    folder.put("a.json", body)
    if body.startswith(b"["):
        await folder.read(JSON)
    assert (await folder.failure(JSON)).reason == "bad_file"


def parquet_file(groups: int = 2, rows: int = 300, **extra: Any) -> bytes:
    target = io.BytesIO()
    table = pyarrow.table({"n": pyarrow.array(range(groups * rows), pyarrow.int64()), **extra})
    parquet.write_table(table, target, row_group_size=rows, compression="zstd")
    return target.getvalue()


async def test_parquet(folder: Folder) -> None:
    rows = [
        {
            "text": TEXT,
            "large": 2**63 - 1,
            "amount": Decimal("12345678901234567890.123456789"),
            "at": MOMENT,
            "on": date(2026, 2, 28),
            "flag": True,
            "bytes": b"\x00\xff",
            "nested": {"list": [{"a": 1, "b": None}], "moment": MOMENT.astimezone(UTC)},
            "map": [("k", 1)],
        },
        dict.fromkeys(["text", "large", "amount", "at", "on", "flag", "bytes", "nested", "map"]),
    ]
    item = pyarrow.struct([("a", pyarrow.int32()), ("b", pyarrow.string())])
    schema = pyarrow.schema(
        [
            ("text", pyarrow.string()),
            ("large", pyarrow.int64()),
            ("amount", pyarrow.decimal128(38, 9)),
            ("at", pyarrow.timestamp("ns", "UTC")),
            ("on", pyarrow.date32()),
            ("flag", pyarrow.bool_()),
            ("bytes", pyarrow.binary()),
            ("nested", pyarrow.struct([("list", pyarrow.list_(item)), ("moment", pyarrow.timestamp("ns", "UTC"))])),
            ("map", pyarrow.map_(pyarrow.string(), pyarrow.int64())),
        ]
    )
    table = pyarrow.Table.from_pylist(rows, schema)
    # A finer time than Python has.
    finer = pyarrow.array([1_792_888_200_123_456_789, None], pyarrow.timestamp("ns", "UTC"))
    target = io.BytesIO()
    parquet.write_table(table.set_column(3, "at", finer), target)
    folder.put("a.parquet", target.getvalue())
    first, second = await folder.read(PARQUET)
    moment = datetime.fromtimestamp(1_792_888_200, UTC) + timedelta(microseconds=123_456)
    assert datetime.fromisoformat(first.pop("at")) == moment
    assert datetime.fromisoformat(first["nested"].pop("moment")) == MOMENT
    assert first == {
        "text": TEXT,
        "large": 2**63 - 1,
        "amount": Decimal("12345678901234567890.123456789"),
        "on": "2026-02-28",
        "flag": True,
        "bytes": "AP8=",
        "nested": {"list": [{"a": 1, "b": None}]},
        "map": {"k": 1},
    }
    assert set(second.values()) == {None}


async def test_parquet_files_that_are_broken_are_named(folder: Folder) -> None:
    body = parquet_file()
    folder.put("a.parquet", body[: len(body) // 2])
    assert (await folder.failure(PARQUET)).reason == "bad_file"
    folder.put("a.parquet", b"PAR1" + b"\xff" * (len(body) - 100) + body[-96:])
    assert (await folder.failure(PARQUET)).reason == "bad_file"


async def test_avro(folder: Folder) -> None:
    schema = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "text", "type": "string"},
            {"name": "large", "type": ["null", "long"]},
            {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 9}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "on", "type": {"type": "int", "logicalType": "date"}},
            {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
            {"name": "bytes", "type": "bytes"},
            {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "boolean"}}},
        ],
    }
    number = uuid.uuid4()
    record = {
        "text": TEXT,
        "large": -(2**63),
        "amount": NUMBER,
        "at": MOMENT,
        "on": date(2026, 2, 28),
        "id": number,
        "bytes": b"\x00\xff",
        "tags": {"x": [True]},
    }
    target = io.BytesIO()
    fastavro.writer(target, schema, [record, record | {"large": None}], codec="deflate")
    folder.put("a.avro", target.getvalue())
    first, second = await folder.read(AVRO)
    assert datetime.fromisoformat(first.pop("at")) == MOMENT
    assert first == {
        "text": TEXT,
        "large": -(2**63),
        "amount": NUMBER,
        "on": "2026-02-28",
        "id": str(number),
        "bytes": "AP8=",
        "tags": {"x": [True]},
    }
    assert second["large"] is None
    # A block counts only if the file's marker follows.
    folder.put("b.avro", target.getvalue()[:-9])
    assert (await folder.failure(AVRO)).reason == "bad_file"


def avro_file(rows: int) -> bytes:
    target = io.BytesIO()
    schema = {"type": "record", "name": "Row", "fields": [{"name": "n", "type": "long"}]}
    fastavro.writer(target, schema, ({"n": number} for number in range(rows)))
    return target.getvalue()


@pytest.mark.parametrize(
    ("file_format", "body"),
    [
        ({"type": "csv", "types": {"n": "integer"}}, b"n\n" + b"".join(b"%d\n" % n for n in range(600))),
        (LINES, gzip.compress(b"".join(b'{"n": %d}\n' % n for n in range(600)))),
        (JSON, json.dumps([{"n": n} for n in range(600)])),
        (PARQUET, parquet_file()),
        (AVRO, avro_file(600)),
    ],
    ids=["csv", "json_lines", "json", "parquet", "avro"],
)
async def test_reading_goes_on_in_the_midst_of_a_file_with_the_same_identities(
    folder: Folder, file_format: dict[str, Any], body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.put("a", body)
    whole, _ = await read_all(folder.reader(file_format))
    monkeypatch.setattr(reading, "_BATCH_ROWS", 70)
    turns, breakpoint = [], None
    for turn in (1, 4, 3, 99):  # batches after which the reader ends
        async with opened(folder.reader(file_format)) as reader, aclosing(reader.read(breakpoint)) as batches:
            for _ in range(turn):
                if (batch := await anext(batches, None)) is None:
                    break
                breakpoint = json.loads(json.dumps(batch.breakpoint))
                turns += batch.records
    assert [json.loads(record.body) for record in turns] == [{"n": n} for n in range(600)]
    assert [record.identity for record in turns] == [record.identity for record in whole]


def lines_file(rows: int) -> bytes:
    return b"".join(b'{"n": %d, "text": "%s"}\n' % (10_000_000 + number, b"x" * 60) for number in range(rows))


@pytest.mark.parametrize(
    ("format", "body", "rows"),
    [
        ("json_lines", lines_file(300), 300),
        ("json_lines", lines_file(40_000), 40_000),
        ("json_lines", gzip.compress(lines_file(40_000)), 40_000),
        ("csv", b"n\n" + b"1234567\n" * 200_000, 200_000),
        ("json", b"[" + b",".join([b"1234567"] * 200_000) + b"]", 200_000),
        ("parquet", parquet_file(), 600),
        ("avro", avro_file(500), 500),
    ],
    ids=["small", "lines", "compressed", "csv", "json", "parquet", "avro"],
)
async def test_rows_are_estimated_before_they_are_read(folder: Folder, format: str, body: bytes, rows: int) -> None:
    folder.put("a", body)
    folder.put("b", body)
    async with opened(folder.reader({"type": format})) as reader:
        estimate = await reader.estimate(None)
        assert 1.6 * rows <= estimate <= 2.4 * rows
        batches = reader.read(None)
        async with aclosing(batches):
            begun = await anext(batches)
    async with opened(folder.reader({"type": format})) as reader:
        left = await reader.estimate(begun.breakpoint)
    assert left == estimate - len(begun.records)


async def test_the_estimate_of_nothing_is_zero_and_that_of_a_bad_file_is_unknown(folder: Folder) -> None:
    async with opened(folder.reader({"type": "json_lines"})) as reader:
        assert await reader.estimate(None) == 0
    folder.put("a", b"")
    async with opened(folder.reader({"type": "json_lines"})) as reader:
        assert await reader.estimate(None) == 0
    folder.put("b", b"no JSON")
    async with opened(folder.reader({"type": "json_lines"})) as reader:
        assert await reader.estimate(None) is None


async def test_files_are_read_by_their_times_and_late_ones_once(folder: Folder) -> None:
    for name, age in (("c", 30), ("a", 20), ("b", 20)):
        folder.put(name, b'"%s"\n' % name.encode(), age)
    moment = int(time.time()) - 20
    for name in ("a", "b"):
        os.utime(folder.path / name, (moment, moment))
    assert await folder.read(LINES) == ["c", "a", "b"]
    folder.put("late", b'"late"\n', age=100)
    folder.put("late2", b'"late2"\n')
    os.utime(folder.path / "late2", (moment, moment))
    assert sorted(await folder.read(LINES)) == ["late", "late2"]
    assert await folder.read(LINES) == []


async def test_a_file_is_left_until_it_has_been_unchanged_for_a_while(folder: Folder) -> None:
    folder.put("a", b"1\n", age=3600)
    folder.put("b", b"2\n")
    assert await folder.read(LINES, settle_seconds=600) == [1]
    folder.put("b", b"3\n", age=900)
    assert await folder.read(LINES, settle_seconds=600) == [3]


async def test_a_file_with_a_marker_is_read_once_that_is_there(folder: Folder) -> None:
    marked = {"marker": "{name}.done"}
    folder.put("a.jsonl", b"1\n", age=3600)
    folder.put("b.jsonl", b"2\n", age=1800)
    folder.put("b.jsonl.done", b"no JSON", age=1700)
    assert await folder.read(LINES, **marked) == [2]
    folder.put("a.jsonl.done", b"")
    assert await folder.read(LINES, **marked) == [1]
    folder.put("a.jsonl.done", b"")
    folder.put("b.jsonl.done", b"")
    assert await folder.read(LINES, **marked) == []


async def test_a_file_whose_marker_is_late_is_read_however_many_were_read_before_it(folder: Folder) -> None:
    marked = {"marker": "{stem}.done", "pattern": "*.jsonl"}
    folder.put("late.jsonl", b'"late"\n', age=9000)
    names = [f"{'x' * 180}{number:04d}" for number in range(800)]
    for number, name in enumerate(names):
        folder.put(f"{name}.jsonl", b"", age=8000 - number)
        folder.put(f"{name}.done", b"", age=8000 - number)
    assert await folder.read(LINES, **marked) == []
    assert Progress(folder.breakpoint).breakpoint()["horizon"][0] > (time.time() - 9000) * 1_000_000
    folder.put("late.done", b"")
    assert await folder.read(LINES, **marked) == ["late"]


async def test_one_marker_completes_its_folder_alone(folder: Folder) -> None:
    for name in ("part-1", "part-2"):
        (folder.path / name).mkdir()
        folder.put(f"{name}/a.jsonl", b'"%s"\n' % name.encode())
    folder.put("part-2/_SUCCESS", b"")
    assert await folder.read(LINES, marker="_SUCCESS", prefix="part-") == ["part-2"]
    folder.put("part-1/_SUCCESS", b"")
    assert await folder.read(LINES, marker="_SUCCESS", prefix="part-1/a") == ["part-1"]


async def test_more_files_than_are_listed_at_once(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_FILES_AT_ONCE", 4)
    for number in range(11):
        folder.put(f"{number:02d}", b"%d\n" % number, age=100 - number)
    assert await folder.read(LINES) == list(range(11))


def stored(number: int, time: int | None = None) -> StoredFile:
    return StoredFile(number if time is None else time, f"folder/of/some/length/{number:09d}.json", f"v{number}", 1)


def test_the_breakpoint_does_not_grow_with_the_number_of_files() -> None:
    progress = Progress(None)
    for number in range(20_000):
        assert progress.is_new(stored(number))
        progress.finished(stored(number))
    breakpoint = json.dumps(progress.breakpoint())
    assert len(breakpoint) < 80_000
    after = Progress(json.loads(breakpoint))
    assert not [number for number in range(20_000) if after.is_new(stored(number))]
    assert after.is_new(stored(20_000))
    # A late file is new as long as its time is among the last ones.
    assert after.is_new(stored(99_999, time=19_900))
    assert not after.is_new(stored(99_999, time=10))


def test_many_files_of_one_time_are_each_read_once() -> None:
    progress = Progress(None)
    files = [stored(number, time=7) for number in range(5000)]
    for file in files:
        assert progress.is_new(file)
        progress.finished(file)
    assert not [file for file in files if progress.is_new(file)]


@pytest.mark.parametrize("kind", ["csv.gz", "json", "parquet"])
async def test_memory_does_not_grow_with_the_file(folder: Folder, kind: str) -> None:
    text, count = "x" * 1000, 40_000  # 40 MB
    file_format = {"csv.gz": CSV, "json": JSON, "parquet": PARQUET}[kind]
    path = folder.path / "large"
    if kind == "csv.gz":
        with gzip.open(path, "wt", compresslevel=1) as file:
            file.write("id,text\n")
            file.writelines(f"{number},{text}\n" for number in range(count))
    elif kind == "json":
        with path.open("w") as file:
            file.write("[" + ",".join(f'{{"id": {number}, "text": "{text}"}}' for number in range(count)) + "]")
    else:
        texts = [f"{number}{text}" for number in range(count)]
        parquet.write_table(pyarrow.table({"id": texts}), path, row_group_size=count, use_dictionary=False)
    read = 0
    async with opened(folder.reader(file_format)) as reader:
        tracemalloc.start()
        arrow = pyarrow.total_allocated_bytes()
        most = 0
        try:
            async for batch in reader.read(None):
                read += len(batch.records)
                most = max(most, pyarrow.total_allocated_bytes() - arrow)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert read == count
    assert peak < 16_000_000
    assert most < 16_000_000


async def test_a_row_that_does_not_end_is_cut_off(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MOST_ROW_BYTES", 1_000_000)
    bomb = gzip.compress(b'"' + b"x" * 50_000_000, compresslevel=1)
    for number, file_format in enumerate((CSV, LINES, JSON)):
        other = Folder()
        other.put(f"bomb{number}", bomb if file_format is not JSON else gzip.compress(b'["' + b"x" * 50_000_000))
        failure = await other.failure(file_format)
        assert failure.reason == "bad_file"
        assert "larger than" in str(failure)
