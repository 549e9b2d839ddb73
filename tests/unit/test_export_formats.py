"""Files of each format: nothing of a message is lost or changed."""

import csv
import gzip
import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.capabilities import DeliveryError
from backend.domain.export_policy import ExportPolicy
from backend.exports.documents import Columns, StagedMessage, documents
from backend.exports.formats import encoder_for

ROWS: list[dict[str, Any]] = [
    {
        "text": 'ação, "quoted"\nnext; line',
        "int": 1,
        "mixed": 1,
        "flag": True,
        "nested": {"a": [1, None]},
        "none": None,
    },
    {
        "text": "",
        "int": 2**63 - 1,
        "mixed": "one",
        "flag": False,
        "price": 1.5,
        "big": 2**63,
        "later": "2026-03-01T12:00:00+02:00",
    },
    {"text": None, "int": -5, "price": 3},
]
EXACT = b'{"text": "x", "exact": 0.1234567890123456789, "int": 7}'


def staged(rows: list[dict[str, Any]], *further: bytes) -> list[StagedMessage]:
    bodies = [json.dumps(row, ensure_ascii=False).encode() for row in rows] + list(further)
    return [StagedMessage(f"id-{n}", "2026-03-01T12:00:00.000Z", "application/json", b) for n, b in enumerate(bodies)]


def written(messages: list[StagedMessage], **fields: Any) -> bytes:
    policy = ExportPolicy.model_validate(fields)
    columns, rows = Columns(policy), list(documents(messages))
    if columns.need_documents:
        columns.look_at(rows)
    encoder = encoder_for(policy, columns.result(), "file")
    return b"".join([encoder.add(rows[:1]), encoder.add(rows[1:]), encoder.finish()])


def plain(data: bytes, compression: str) -> bytes:
    return {"none": bytes, "gzip": gzip.decompress, "zstd": zstd.decompress}[compression](data)


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_csv(compression: str) -> None:
    data = plain(written(staged(ROWS, EXACT), format="csv", compression=compression), compression)
    rows = list(csv.DictReader(io.StringIO(data.decode(), newline="")))
    assert [row["text"] for row in rows] == [ROWS[0]["text"], "", "", "x"]
    assert [row["int"] for row in rows] == ["1", str(2**63 - 1), "-5", "7"]
    assert rows[0]["nested"] == '{"a":[1,null]}'
    assert (rows[0]["flag"], rows[1]["big"], rows[3]["exact"]) == ("true", str(2**63), "0.1234567890123456789")


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_files_without_messages_have_the_header_of_their_columns(compression: str) -> None:
    columns = [{"path": "nested.a", "name": "a"}, {"path": "text"}]
    assert plain(written([], format="csv", compression=compression, columns=columns), compression) == b"a,text\r\n"
    assert plain(written([], format="csv", compression=compression), compression) == b""
    assert plain(written([], format="jsonl", compression=compression), compression) == b""


def test_typed_files_without_messages_have_their_schema() -> None:
    columns = [{"path": "n", "type": "integer"}, {"path": "at", "type": "timestamp"}]
    table = pq.read_table(io.BytesIO(written([], format="parquet", columns=columns)))
    assert (table.num_rows, table.column_names) == (0, ["n", "at"])
    reader: Any = fastavro.reader(io.BytesIO(written([], format="avro", columns=columns)))
    assert [field["name"] for field in reader.writer_schema["fields"]] == ["n", "at"]
    assert list(reader) == []


def test_csv_with_columns_and_another_delimiter() -> None:
    columns = [{"path": "nested.a", "name": "a"}, {"path": "text"}]
    data = written(staged(ROWS[:1]), format="csv", columns=columns, delimiter=";", header=False, message_fields=True)
    assert next(csv.reader(io.StringIO(data.decode(), newline=""), delimiter=";")) == [
        "id-0",
        "2026-03-01T12:00:00.000Z",
        "[1,null]",
        ROWS[0]["text"],
    ]


@given(
    st.lists(
        st.dictionaries(st.text(min_size=1, max_size=200), st.text() | st.integers(), min_size=1, max_size=20),
        min_size=1,
        max_size=20,
    )
)
def test_csv_is_read_back_by_any_reader(rows: list[dict[str, Any]]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = [{"path": f"/{name.replace('~', '~0').replace('/', '~1')}", "name": name} for name in names]
    data = written(staged(rows), format="csv", columns=columns)
    assert data.endswith(b"\r\n")
    header, *read = csv.reader(io.StringIO(data.decode(), newline=""), strict=True)
    assert header == names
    assert read == [[str(row.get(name, "")) for name in names] for row in rows]


def test_csv_that_is_safe_for_spreadsheets() -> None:
    row = {"=cmd()": "=1+1", "plus": "+1", "minus": -1, "at": "@x", "tab": "\tx", "return": "\rx", "text": "a=b"}
    data = written(staged([row]), format="csv", spreadsheet_safe=True)
    header, values = csv.reader(io.StringIO(data.decode(), newline=""))
    assert header[0] == "'=cmd()"
    assert values == ["'=1+1", "'+1", "-1", "'@x", "'\tx", "'\rx", "a=b"]


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_json_lines(compression: str) -> None:
    pretty = json.dumps(ROWS[0], indent=2).encode()
    data = plain(written(staged(ROWS, EXACT, pretty), format="jsonl", compression=compression), compression)
    lines = data.splitlines()
    assert [json.loads(line) for line in lines[:3]] == ROWS
    assert b"0.1234567890123456789" in lines[3]
    assert json.loads(lines[4]) == ROWS[0]


def test_json_lines_with_columns() -> None:
    data = written(staged(ROWS), columns=[{"path": "/nested/a/0", "name": "first"}, {"path": "int"}])
    assert next(json.loads(line) for line in data.splitlines()) == {"first": 1, "int": 1}


def check_typed(rows: list[dict[str, Any]]) -> None:
    assert [row["text"] for row in rows] == [ROWS[0]["text"], "", None, "x"]
    assert [row["int"] for row in rows] == [1, 2**63 - 1, -5, 7]
    assert [row["price"] for row in rows] == [None, 1.5, 3.0, None]
    assert [row["flag"] for row in rows] == [True, False, None, None]
    assert [row["mixed"] for row in rows] == ["1", '"one"', None, None]
    assert (rows[1]["big"], rows[3]["exact"]) == (str(2**63), "0.1234567890123456789")
    assert Decimal(rows[3]["exact"]) == Decimal("0.1234567890123456789")
    assert json.loads(rows[0]["nested"]) == ROWS[0]["nested"]
    assert {row["none"] for row in rows} == {None}


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_parquet(compression: str) -> None:
    data = written(staged(ROWS, EXACT), format="parquet", compression=compression)
    check_typed(pq.read_table(io.BytesIO(data)).to_pylist())


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_avro(compression: str) -> None:
    data = written(staged(ROWS, EXACT), format="avro", compression=compression)
    check_typed(list(fastavro.reader(io.BytesIO(data))))


@pytest.mark.parametrize("format", ["parquet", "avro"])
def test_types_that_were_chosen(format: str) -> None:
    columns = [{"path": "later", "type": "timestamp"}, {"path": "int", "type": "number"}]
    data = written(staged(ROWS[1:2]), format=format, columns=columns)
    source = io.BytesIO(data)
    [row] = pq.read_table(source).to_pylist() if format == "parquet" else list(fastavro.reader(source))
    assert row["later"].isoformat() == "2026-03-01T10:00:00+00:00"
    assert row["int"] == float(2**63 - 1)


@pytest.mark.parametrize("format", ["parquet", "avro"])
def test_a_value_that_does_not_fit_is_named_without_its_content(format: str) -> None:
    with pytest.raises(DeliveryError) as refused:
        written(staged(ROWS), format=format, columns=[{"path": "text", "type": "integer"}])
    assert "column text" in str(refused.value)
    assert "id-0" in str(refused.value)
    assert "quoted" not in str(refused.value)
    assert not refused.value.retryable


def test_bodies_that_are_no_objects() -> None:
    messages = [
        StagedMessage("a", "t", "application/json", b"[1, 2]"),
        StagedMessage("b", "t", "text/plain", "olá".encode()),
        StagedMessage("c", "t", "application/octet-stream", b"\xff\x00"),
    ]
    data = written(messages, format="jsonl")
    assert [json.loads(line) for line in data.splitlines()] == [{"value": [1, 2]}, {"value": "olá"}, {"value": "/wA="}]


@pytest.mark.parametrize("format", ["csv", "jsonl", "parquet", "avro"])
def test_the_same_messages_make_the_same_file(format: str) -> None:
    assert written(staged(ROWS, EXACT), format=format) == written(staged(ROWS, EXACT), format=format)


def test_too_many_fields_ask_for_columns() -> None:
    with pytest.raises(DeliveryError, match="choose columns"):
        written(staged([{f"f{n}": 1 for n in range(2001)}]), format="csv")
