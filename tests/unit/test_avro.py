"""Avro within bounds. What is generated compares with the library itself, which reads and writes what is harmless."""

import bz2
import io
import lzma
import re
import time
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import date
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from backports.zstd import ZstdCompressor
from hypothesis import assume, given, reject
from hypothesis import strategies as st
from pydantic import ValidationError

from backend.connectors.parts.files import formats as file_formats
from backend.domain import json, limits
from backend.domain.avro.builder import types_of
from backend.domain.avro.files import read_file
from backend.domain.avro.schema import AvroSchema, SchemaError
from backend.domain.avro.types import Scan
from backend.domain.reasons import Reason
from backend.domain.transforms.base import TransformError
from backend.domain.transforms.chain import Chain
from backend.domain.transforms.decode import Decode
from backend.domain.transforms.encode import Encode

CHAIN = {"type": "record", "name": "r", "fields": [{"name": "a", "type": ["null", "r"]}]}
SECONDS = 5
"""Far more than is needed, and far less than what is not bounded takes."""

NANOSECONDS = {"type": "long", "logicalType": "timestamp-nanos"}
"""Which the library does not know, so that it is a long."""

# Schemas: named types are numbered, so that names are unique, and a record may be named within itself where a datum can
# do without it.

_MOMENTS = [
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-millis"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
]
_SCALARS = [
    *("null", "boolean", "int", "long", "float", "double", "string", "bytes"),
    *_MOMENTS,
    NANOSECONDS,
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
]


@st.composite
def schemas(draw: st.DrawFn) -> Any:
    names = iter(f"n{number}" for number in range(10_000))

    def any_type(depth: int, around: tuple[str, ...], optional: bool) -> Any:
        kinds = ["scalar", "enum", "fixed"]
        kinds += ["record", "array", "map", "union"] if depth < 4 else []
        kinds += ["around"] if around and optional else []
        match draw(st.sampled_from(kinds)):
            case "scalar":
                return draw(st.sampled_from(_SCALARS))
            case "enum":
                return {"type": "enum", "name": next(names), "symbols": ["A", "B", "C"]}
            case "fixed":
                return {"type": "fixed", "name": next(names), "size": draw(st.integers(0, 4))}
            case "array":
                return {"type": "array", "items": any_type(depth + 1, around, True)}
            case "map":
                return {"type": "map", "values": any_type(depth + 1, around, True)}
            case "union":
                branches = {}
                for _ in range(draw(st.integers(1, 3))):
                    branch = any_type(depth + 1, around, True)
                    if not isinstance(branch, list):
                        branches[branch_name(branch)] = branch
                return ["null", *(branch for name, branch in branches.items() if name != "null")]
            case "record":
                name = next(names)
                types = [any_type(depth + 1, (*around, name), False) for _ in range(draw(st.integers(0, 4)))]
                return {
                    "type": "record",
                    "name": name,
                    "fields": [{"name": f"f{number}", "type": one} for number, one in enumerate(types)],
                }
        return draw(st.sampled_from(around))

    return any_type(0, (), False)


def branch_name(schema: Any) -> str:
    return schema if isinstance(schema, str) else schema.get("name") or schema["type"]


_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": st.text(max_size=5),
    "bytes": st.binary(max_size=5),
    "date": st.dates(),
    "time-millis": st.integers(0, 86_399_999),
    "time-micros": st.integers(0, 86_399_999_999),
    **{f"{local}timestamp-millis": st.integers(-62_135_596_800_000, 253_402_300_799_999) for local in ("", "local-")},
    **{
        f"{local}timestamp-micros": st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)
        for local in ("", "local-")
    },
    "timestamp-nanos": st.integers(0, 10**18),
    "uuid": st.uuids(),
    "decimal": st.integers(-(10**9), 10**9).map(lambda unscaled: Decimal(unscaled).scaleb(-2)),
}


@st.composite
def data(draw: st.DrawFn, schema: Any) -> Any:
    """A value as the library writes it, which is told the branch of each union."""
    named: dict[str, Any] = {}

    def value(schema: Any, depth: int) -> Any:
        if isinstance(schema, list):
            branch = schema[0] if depth > 8 else draw(st.sampled_from(schema))
            return branch_name(branch), value(branch, depth)
        if isinstance(schema, str) and schema in named:
            schema = named[schema]
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind in ("record", "enum", "fixed"):
            named[schema["name"]] = schema
        size = 0 if depth > 8 else draw(st.integers(0, 3))
        match kind:
            case "record":
                return {field["name"]: value(field["type"], depth + 1) for field in schema["fields"]}
            case "array":
                return [value(schema["items"], depth + 1) for _ in range(size)]
            case "map":
                return {f"k{number}": value(schema["values"], depth + 1) for number in range(size)}
            case "enum":
                return draw(st.sampled_from(schema["symbols"]))
            case "fixed":
                return draw(st.binary(min_size=schema["size"], max_size=schema["size"]))
        return draw(_VALUES[kind if isinstance(schema, str) else schema.get("logicalType", kind)])

    return value(schema, 0)


@st.composite
def written(draw: st.DrawFn) -> tuple[Any, bytes]:
    schema = draw(schemas())
    return schema, by_library(schema, draw(data(schema)))


def by_library(schema: Any, value: Any) -> bytes:
    binary = io.BytesIO()
    fastavro.schemaless_writer(binary, fastavro.parse_schema(schema), value, strict_allow_default=True)
    return binary.getvalue()


def read_by_library(schema: Any, binary: bytes) -> tuple[Any, int]:
    source = io.BytesIO(binary)
    return fastavro.schemaless_reader(source, fastavro.parse_schema(schema), None), source.tell()


def end_of(schema: Any, binary: bytes) -> int:
    return Scan(memoryview(binary), 0).pass_over(types_of(fastavro.parse_schema(schema)))


def long(number: int) -> bytes:
    return by_library("long", number)


@contextmanager
def within_seconds() -> Iterator[None]:
    begin = time.process_time()
    yield
    assert time.process_time() - begin < SECONDS


def refused(chain: Chain, body: bytes) -> TransformError:
    with within_seconds(), pytest.raises(TransformError) as caught:
        chain.run(body)
    return caught.value


def decoded(schema: Any) -> Chain:
    return Chain([Decode(format="avro", avro_schema=schema)])


def encoded(schema: Any) -> Chain:
    return Chain([Encode(format="avro", avro_schema=schema)])


# The examples.


def test_neighbours_4_a_chain_of_5000_records_is_a_dead_letter() -> None:
    error = refused(decoded(CHAIN), b"\x02" * 5000 + b"\x00")
    assert (error.reason, str(error)) == (
        Reason.TOO_LARGE,
        "Step 1 (decode): The message is nested more than 100 deep.",
    )


def test_neighbours_4_an_array_that_announces_100_million_nulls_is_a_dead_letter() -> None:
    error = refused(decoded({"type": "array", "items": "null"}), long(10**8) + b"\x00")
    assert (error.reason, str(error)) == (
        Reason.TOO_LARGE,
        "Step 1 (decode): The message would have more than 1,572,864 values.",
    )


# Reading.


def test_neighbours_4_records_are_read_up_to_the_depth() -> None:
    [result] = decoded(CHAIN).run(b"\x02" * (limits.DEPTH - 1) + b"\x00")
    assert result.body.count(b"{") == limits.DEPTH
    assert refused(decoded(CHAIN), b"\x02" * limits.DEPTH + b"\x00").reason == Reason.TOO_LARGE


def test_neighbours_4_the_limit_is_named_behind_a_confluent_header_too() -> None:
    assert refused(decoded(CHAIN), b"\x00\x00\x00\x00\x07" + b"\x02" * 5000 + b"\x00").reason == Reason.TOO_LARGE


@given(written())
def test_neighbours_4_what_the_library_writes_is_passed_over_and_read(schema_and_data: tuple[Any, bytes]) -> None:
    schema, binary = schema_and_data
    assert end_of(schema, binary) == len(binary)
    assert AvroSchema(schema).read(binary) == read_by_library(schema, binary)[0]


@given(written(), st.data())
def test_neighbours_4_what_ends_early_is_refused(schema_and_data: tuple[Any, bytes], draw: st.DataObject) -> None:
    schema, binary = schema_and_data
    assume(binary)
    cut = binary[: draw.draw(st.integers(0, len(binary) - 1))]
    with pytest.raises(ValueError, match="This is not Avro data"):
        end_of(schema, cut)
    with pytest.raises(ValueError, match="This is not Avro data"):
        AvroSchema(schema).read(cut)


@pytest.mark.parametrize(
    ("schema", "binary"),
    [
        ({"type": "array", "items": "int"}, b"\xff" * 9 + b"\x01\x00"),  # -2^63 items in a block of no bytes
        ({"type": "map", "values": "null"}, b"\xfe" + b"\xff" * 8 + b"\x01"),  # 2^63 - 1
        ({"type": "array", "items": "int"}, b"\x06\x02\x02"),
    ],
)
def test_more_items_than_bytes_are_refused(schema: Any, binary: bytes) -> None:
    with pytest.raises(ValueError, match="a length leads beyond its end"):
        end_of(schema, binary)
    with pytest.raises(ValueError, match="This is not Avro data"):
        AvroSchema(schema).read(binary)


@given(schemas(), st.binary(max_size=60))
def test_neighbours_4_any_bytes_are_refused_or_passed_over_as_they_are_read(schema: Any, binary: bytes) -> None:
    with within_seconds():
        try:
            end = end_of(schema, binary)
        except ValueError:
            return
        try:
            _, read_end = read_by_library(schema, binary)
        except Exception:  # a symbol, a text or a time that is none
            return
        assert read_end == end


@given(schemas(), st.binary(max_size=300))
def test_neighbours_4_any_bytes_are_read_in_a_short_time(schema: Any, binary: bytes) -> None:
    with within_seconds(), suppress(ValueError):
        AvroSchema(schema).read(binary)


@pytest.mark.parametrize(
    "items",
    [
        "null",
        {"type": "fixed", "name": "f", "size": 0},
        {"type": "record", "name": "e", "fields": []},
        {"type": "record", "name": "e", "fields": [{"name": "n", "type": "null"}]},
    ],
)
@pytest.mark.parametrize("count", [10**8, -(10**8), 2**63 - 1, -(2**63)])
def test_neighbours_4_items_without_bytes_are_counted(items: Any, count: int) -> None:
    binary = long(count) + (long(0) if count < 0 else b"") + b"\x00"
    with within_seconds(), pytest.raises(limits.TooLargeError, match="more than 1,572,864 values"):
        AvroSchema({"type": "array", "items": items}).read(binary)


def test_neighbours_4_values_without_bytes_multiply_no_others() -> None:
    fields = [{"name": "i", "type": "int"}, *({"name": f"n{number}", "type": "null"} for number in range(99))]
    schema = {"type": "array", "items": {"type": "record", "name": "wide", "fields": fields}}
    binary = long(1_000_000) + b"\x02" * 1_000_000 + b"\x00"
    with within_seconds(), pytest.raises(limits.TooLargeError, match="values"):
        AvroSchema(schema).read(binary)


def test_neighbours_4_a_record_that_doubles_at_each_level_needs_no_bytes() -> None:
    widest = doubled(60, {})
    with within_seconds(), pytest.raises(limits.TooLargeError, match="values"):
        AvroSchema(widest).read(long(60))
    with within_seconds(), pytest.raises(limits.TooLargeError, match="values"):
        AvroSchema([*widest, {"type": "array", "items": "d60"}]).read(long(61) + long(1) + long(0))


def doubled(levels: int, default: dict[str, Any]) -> list[Any]:
    """Records of two records each. The last branch is the widest."""
    records: list[Any] = [{"type": "record", "name": "d0", "fields": []}]
    for level in range(1, levels + 1):
        fields = [{"name": name, "type": f"d{level - 1}", **default} for name in "xy"]
        records.append({"type": "record", "name": f"d{level}", "fields": fields})
    return records


def test_neighbours_4_a_decimal_has_a_length() -> None:
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 2}
    with within_seconds(), pytest.raises(limits.TooLargeError, match="more than 4,096 bytes"):
        AvroSchema(schema).read(by_library("bytes", b"\x7f" * 3_000_000))
    with within_seconds():
        AvroSchema(schema).read(by_library("bytes", b"\x7f" * 4000))


# Both ways.


def reads_as(avro: AvroSchema, binary: bytes, document: Any) -> bool:
    try:
        return json.dumps(avro.read_json(binary)) == json.dumps(document)
    except ValueError:
        return False


def has_widths(schema: Any) -> bool:
    """Whether a union has integers or floats of both widths, of which JSON has one."""
    match schema:
        case list():
            names = {branch_name(branch) for branch in schema if isinstance(branch, str) or branch == NANOSECONDS}
            return names >= {"int", "long"} or names >= {"float", "double"} or any(map(has_widths, schema))
        case {"fields": fields}:
            return any(has_widths(field["type"]) for field in fields)
        case {"items": part} | {"values": part}:
            return has_widths(part)
    return False


@given(written())
def test_what_is_read_as_json_is_written_as_the_same_bytes(schema_and_data: tuple[Any, bytes]) -> None:
    avro, binary = AvroSchema(schema_and_data[0]), schema_and_data[1]
    try:
        document = json.loads(json.dumps(avro.read_json(binary)))
    except ValueError as error:
        if "JSON cannot tell the branches" not in str(error):
            raise
        reject()  # such as a record without fields beside a map of such records
    again = avro.write(document)
    assert has_widths(schema_and_data[0]) or again == binary
    assert json.loads(json.dumps(avro.read_json(again))) == document


ENUM = {"type": "enum", "name": "e", "symbols": ["A", "B"]}
FIXED = {"type": "fixed", "name": "f", "size": 4}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
MOMENT = {"type": "long", "logicalType": "timestamp-millis"}
TIME = {"type": "int", "logicalType": "time-millis"}
MICROSECOND_TIME = {"type": "long", "logicalType": "time-micros"}
AB = [{"type": "record", "name": name, "fields": [{"name": "x", "type": "int"}]} for name in "ab"]


@pytest.mark.parametrize(
    ("schema", "native", "document"),
    [
        (MONEY, Decimal("1.10"), b"1.10"),
        (FIXED | {"logicalType": "decimal", "precision": 9, "scale": 3}, Decimal("-0.001"), b"-0.001"),
        ("bytes", b"\x00\xff", b'"\\u0000\xc3\xbf"'),
        (FIXED, b"abc\xff", b'"abc\xc3\xbf"'),
        (
            {"type": "fixed", "name": "d", "size": 12, "logicalType": "duration"},
            b"\x01" * 12,
            b'"' + b"\\u0001" * 12 + b'"',
        ),
        ("double", float("nan"), b'"NaN"'),
        ("float", float("-inf"), b'"-Infinity"'),
        (MOMENT, 1709630130123, b'"2024-03-05T09:15:30.123000+00:00"'),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, 1709630130000001, b'"2024-03-05T09:15:30.000001"'),
        ({"type": "int", "logicalType": "time-millis"}, 1500, b'"00:00:01.500000"'),
        ({"type": "int", "logicalType": "date"}, 1, b'"1970-01-02"'),
        ({"type": "string", "logicalType": "uuid"}, uuid.UUID(int=1), b'"00000000-0000-0000-0000-000000000001"'),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, "A", b'"A"'),
        (["string", "bytes"], ("string", "x"), b'"x"'),
        (["string", "bytes"], ("bytes", b"x"), b'{"bytes":"x"}'),
        (["double", MONEY], ("bytes", Decimal("1.5")), b'{"bytes":1.50}'),
        (["double", "string"], ("double", float("inf")), b'{"double":"Infinity"}'),
        (["null", MOMENT], ("long", 0), b'"1970-01-01T00:00:00+00:00"'),
        ([TIME, "long"], ("long", 5), b'{"long":5}'),
        ([TIME, "long"], ("long", 86_400_000), b"86400000"),
        ([TIME, MICROSECOND_TIME], ("int", 1), b'"00:00:00.001000"'),
        ([TIME, MICROSECOND_TIME], ("long", 1000), b'{"long":"00:00:00.001000"}'),
        ([TIME, MICROSECOND_TIME], ("long", 1), b'"00:00:00.000001"'),
        ([MICROSECOND_TIME, TIME], ("int", 1), b'{"int":"00:00:00.001000"}'),
        (AB, ("a", {"x": 1}), b'{"x":1}'),
        (AB, ("b", {"x": 1}), b'{"b":{"x":1}}'),
        ({"type": "array", "items": AB}, [("b", {"x": 1})], b'[{"b":{"x":1}}]'),
    ],
    ids=str,
)
def test_every_type_has_its_json(schema: Any, native: Any, document: bytes) -> None:
    binary = by_library(schema, native)
    avro = AvroSchema(schema)
    assert json.dumps(avro.read_json(binary)) == document
    assert avro.write(json.loads(document)) == binary


@pytest.mark.parametrize(
    ("schema", "document", "problem"),
    [
        ("int", b"1.5", "The message does not fit the Avro schema: it is not an integer."),
        ("int", b"2147483648", "it is out of the range of 32 bits"),
        ("int", b"1e999999999", "it is out of the range of 32 bits"),
        ("int", b"true", "it is not an integer"),
        ("double", b"true", "it is not a number"),
        ("double", b"1e400", "it is out of the range of a double"),
        ("float", b"1e39", "it is out of the range of a float"),
        ("double", b"9007199254740993", "it has more digits than a double holds"),
        ("double", b"12345678901234567.89", "it has more digits than a double holds"),
        ("string", b"1", "it is not a text"),
        ("bytes", '"\u0100"'.encode(), "it has the character U+0100, which is no byte"),
        (FIXED, b'"abc"', "it has 3 bytes instead of 4"),
        (MONEY, b"1.001", "it has more than 2 digits behind the point"),
        (MONEY, b"10000", "it has more than 6 digits"),
        (MOMENT, b'"2024-03-05T09:15:30"', "its zone or its digits do not fit"),
        (MOMENT, b'"2024-03-05T09:15:30.0001Z"', "its zone or its digits do not fit"),
        (MOMENT, b'"yesterday"', "it is not a time as in ISO 8601"),
        (MOMENT, b'"0001-01-01T00:00:00+01:00"', "it is out of the years 1 to 9999"),
        (MOMENT, b"253402300800000", "it is out of the years 1 to 9999"),
        (TIME, b"-1", "The message does not fit the Avro schema: it is out of the 24 hours of a day."),
        (["null", TIME], b"86400000", "it is out of the 24 hours of a day"),
        ([TIME, "boolean"], b"86400000", "no branch of the union of int, boolean fits 86400000."),
        ({"type": "string", "logicalType": "uuid"}, b'"x"', "it is not a UUID"),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, b'"B"', "it is none of the symbols"),
        (["null", "int"], b'"x"', "The message does not fit the Avro schema: it is not an integer."),
        (["null", "int", "boolean"], b'"x"', "no branch of the union of null, int, boolean fits x."),
        (["int"], b'"x"', "The message does not fit the Avro schema: it is not an integer."),
        (["int"], b"null", "no branch of the union of int fits null."),
        ({"type": "array", "items": "int"}, b'[1,"x"]', "1 does not fit the Avro schema: it is not an integer."),
        ({"type": "map", "values": "int"}, b"[1]", "it is not an object"),
        (AB[0], b"{}", "x does not fit the Avro schema: it is missing."),
        (AB[0], b'{"x":1,"y":2}', "it has the field y, which the schema does not have"),
        (CHAIN, b'{"a":{"a":{"b":1}}}', "a.a.a does not fit the Avro schema: it is missing."),
        (CHAIN, b'{"a":{"a":1}}', "a.a does not fit the Avro schema: it is not an object."),
        (
            {"type": "map", "values": AB[0]},
            b'{"k":{"x":"1"}}',
            "k.x does not fit the Avro schema: it is not an integer.",
        ),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_at_its_place(schema: Any, document: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        AvroSchema(schema).write(json.loads(document))


@given(st.sampled_from(_MOMENTS), st.data())
def test_a_number_is_a_time_both_ways_or_neither(logical: dict[str, str], draw: st.DataObject) -> None:
    """The library reads -1 as the last millisecond of a day."""
    number = draw.draw(_VALUES[logical["type"]] | _VALUES[logical["logicalType"]])
    if not isinstance(number, int):
        number = (number - date(1970, 1, 1)).days
    avro, binary = AvroSchema(logical), by_library(logical, number)
    try:
        document = avro.read_json(binary)
    except ValueError as error:
        refusal = str(error)
        with pytest.raises(ValueError, match="it is out of the "):
            avro.write(number)
        assert " is out of the " in refusal
    else:
        assert avro.write(number) == binary == avro.write(document)


@pytest.mark.parametrize(
    ("logical", "numbers", "texts"),
    [
        ({"type": "int", "logicalType": "date"}, (-719_162, 2_932_896), ("0001-01-01", "9999-12-31")),
        (TIME, (0, 86_399_999), ("00:00:00", "23:59:59.999000")),
        ({"type": "long", "logicalType": "time-micros"}, (0, 86_399_999_999), ("00:00:00", "23:59:59.999999")),
        (
            MOMENT,
            (-62_135_596_800_000, 253_402_300_799_999),
            ("0001-01-01T00:00:00+00:00", "9999-12-31T23:59:59.999000+00:00"),
        ),
        (
            {"type": "long", "logicalType": "local-timestamp-micros"},
            (-62_135_596_800_000_000, 253_402_300_799_999_999),
            ("0001-01-01T00:00:00", "9999-12-31T23:59:59.999999"),
        ),
    ],
    ids=str,
)
def test_times_have_a_first_and_a_last_one(
    logical: dict[str, str], numbers: tuple[int, int], texts: tuple[str, str]
) -> None:
    avro = AvroSchema(logical)
    assert tuple(avro.read_json(avro.write(number)) for number in numbers) == texts
    for beyond in (numbers[0] - 1, numbers[1] + 1):
        with pytest.raises(ValueError, match="is out of the"):
            avro.write(beyond)
        with pytest.raises(ValueError, match="is out of the"):
            avro.read(by_library(logical, beyond))


@pytest.mark.parametrize(
    ("schema", "document", "written"),
    [
        ("int", b"2.0", 2),
        ("long", b"1e3", 1000),
        ("double", b"0.1", 0.1),
        ("float", b"0.1", 0.1),
        ("double", b"5", 5.0),
    ],
)
def test_numbers_may_be_written_in_another_way(schema: str, document: bytes, written: float) -> None:
    assert AvroSchema(schema).write(json.loads(document)) == by_library(schema, written)


def test_branches_that_json_cannot_tell_apart_are_refused() -> None:
    schema = ["string", {"type": "map", "values": "string"}, "bytes"]
    with pytest.raises(ValueError, match="JSON cannot tell the branches of the union of string, map, bytes apart"):
        AvroSchema(schema).read_json(by_library(schema, ("bytes", b"x")))


@pytest.mark.parametrize(
    ("schema", "value", "document"),
    [
        (["null", ENUM, "string"], "x", "x"),
        (["null", ENUM, "string"], "", ""),
        (["null", ENUM, "string"], ("string", "A"), {"string": "A"}),
        (["null", FIXED, "bytes"], b"abcde", "abcde"),
        (["null", FIXED, "bytes"], ("bytes", b"abcd"), {"bytes": "abcd"}),
    ],
    ids=str,
)
def test_a_branch_before_its_own_with_the_same_values_is_not_taken(schema: Any, value: Any, document: Any) -> None:
    avro = AvroSchema(schema)
    written = by_library(schema, value)
    assert avro.read_json(written) == document
    assert avro.write(document) == written


# Writing.


@given(schemas(), st.data())
def test_neighbours_4_documents_are_written_as_the_library_writes_them(schema: Any, draw: st.DataObject) -> None:
    document = json.loads(json.dumps(draw.draw(st.one_of(documents(schema), documents(schema).map(damaged)))))
    try:
        expected: bytes | None = by_library(schema, floats(document))
    except Exception:
        expected = None
    avro = AvroSchema(schema)
    try:
        made = avro.write(document)
    except ValueError:
        # The library takes some documents for what they are not, such as a text for a list.
        assert expected is None or not reads_as(avro, expected, document)
    else:
        # Of texts the library makes no bytes and few logical types.
        assert expected in (None, made)
        assert avro.write(json.loads(json.dumps(avro.read_json(made)))) == made


@st.composite
def documents(draw: st.DrawFn, schema: Any) -> Any:
    """JSON for the schema. Bytes, which JSON does not have, are texts, so that some documents do not fit."""

    def plain(value: Any) -> Any:
        match value:
            case (_, branch):
                return plain(branch)
            case dict():
                return {name: plain(one) for name, one in value.items()}
            case list():
                return [plain(one) for one in value]
            case bytes():
                return value.decode("latin-1")
            case None | bool() | int() | str():
                return value
            case float():
                return value if abs(value) < 1e30 else 0.5
        return str(value)

    return plain(draw(data(schema)))


def damaged(document: Any) -> Any:
    """With a value less, or of another type, somewhere."""
    match document:
        case dict() if document:
            name = min(document)
            return {**document, name: damaged(document[name])} if document[name] else {"f9": 1}
        case list() if document:
            return [damaged(document[0]), *document[1:]]
    return "other"


def floats(document: Any) -> Any:
    match document:
        case dict():
            return {name: floats(value) for name, value in document.items()}
        case list():
            return [floats(value) for value in document]
        case Decimal():
            return float(document)
    return document


AMBIGUOUS = {
    "type": "record",
    "name": "a",
    "fields": [
        {
            "name": "c",
            "type": [
                "null",
                "a",
                {"type": "record", "name": "b", "fields": [{"name": "c", "type": ["null", "a", "b"]}]},
            ],
        }
    ],
}


@given(st.lists(st.sampled_from(["a", "b"]), max_size=12), st.sampled_from([None, "x", {}]))
def test_neighbours_4_branches_are_chosen_as_the_library_chooses_them(levels: list[str], last: Any) -> None:
    document: Any = {"c": last}
    for _ in levels:
        document = {"c": document}
    try:
        expected: bytes | None = by_library(AMBIGUOUS, document)
    except ValueError:
        expected = None
    try:
        assert AvroSchema(AMBIGUOUS).write(document) == expected
    except ValueError:
        assert expected is None


def test_neighbours_4_branches_are_chosen_in_a_short_time() -> None:
    fitting, unfitting = ({"c": last} for last in (None, "x"))
    for _ in range(limits.DEPTH - 1):
        fitting, unfitting = {"c": fitting}, {"c": unfitting}
    with within_seconds():
        assert AvroSchema(AMBIGUOUS).write(fitting)
        with pytest.raises(ValueError, match=r"no branch .* fits"):
            AvroSchema(AMBIGUOUS).write(unfitting)


def test_neighbours_4_a_document_that_is_nested_too_deeply_is_a_dead_letter() -> None:
    error = refused(encoded(CHAIN), b'{"a":' * 400 + b"null" + b"}" * 400)
    assert (error.reason, str(error)) == (
        Reason.TOO_LARGE,
        "Step 1 (encode): The message is nested more than 100 deep.",
    )


def test_neighbours_4_choices_are_counted() -> None:
    records = [{"type": "record", "name": f"r{n}", "fields": [{"name": f"f{n}", "type": "int"}]} for n in range(500)]
    error = refused(encoded({"type": "array", "items": records}), b"[" + b'{"f499":1},' * 100_000 + b'{"f499":1}]')
    assert (error.reason, "choices between branches" in str(error)) == (Reason.TOO_LARGE, True)


def test_neighbours_4_defaults_count_in_the_size() -> None:
    schema = {
        "type": "array",
        "items": {"type": "record", "name": "d", "fields": [{"name": "s", "type": "string", "default": "x" * 100_000}]},
    }
    assert AvroSchema(schema).read(AvroSchema(schema).write([{}, {}])) == [{"s": "x" * 100_000}] * 2
    assert refused(encoded(schema), b"[" + b"{}," * 100_000 + b"{}]").reason == Reason.TOO_LARGE


# Schemas.

_NESTED: dict[str, Callable[[Any], Any]] = {
    "array": lambda inner: {"type": "array", "items": inner},
    "map": lambda inner: {"type": "map", "values": inner},
    "record": lambda inner: {"type": "record", "name": "r", "fields": [{"name": "a", "type": inner}]},
    "union": lambda inner: ["null", inner],
    "default": lambda inner: {"type": "string", "default": inner},
}


@pytest.mark.parametrize("kind", _NESTED)
@pytest.mark.parametrize("depth", [500, 5_000, 100_000])
def test_neighbours_4_a_schema_that_is_nested_too_deeply_is_refused(kind: str, depth: int) -> None:
    schema: Any = "int"
    for _ in range(depth):
        schema = _NESTED[kind](schema)
    with within_seconds(), pytest.raises(SchemaError, match="nested too deeply"):
        AvroSchema(schema)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (
            {"type": "record", "name": "r", "fields": [{"name": "a", "type": "r"}]},
            "the record r always contains itself",
        ),
        (
            {"type": "record", "name": "r", "fields": [{"name": "a", "type": ["r", "null"], "default": {}}]},
            "the default of r.a is too large or contains itself",
        ),
        (doubled(60, {"default": {}}), "is too large or contains itself"),
        (doubled(101, {}), "it is nested more than 100 deep"),
        ({"type": "fixed", "name": "f", "size": -1}, "is no type"),
        ({"type": "fixed", "name": "f", "size": "1"}, "is no type"),
        (
            {"type": "fixed", "name": "f", "size": 5000, "logicalType": "decimal", "precision": 2},
            "the decimal f has more than 4,096 bytes",
        ),
        ({"type": "record", "name": "n" * 256, "fields": []}, "a name is not a text of 1 to 255 characters"),
        ({"type": "record", "name": "r", "fields": [{"name": 1, "type": "int"}]}, "a name is not a text"),
        (["int", "int"], "a union has several branches of one type: int, int"),
        ([["int"], "null"], "a union immediately contains another one"),
        ({"type": "array", "items": "int", "__fastavro_parsed": True}, "it has the property __fastavro_parsed"),
        (None, "not a valid Avro schema"),
        ("nothing", "not a valid Avro schema"),
    ],
)
def test_neighbours_4_a_schema_whose_data_have_no_bounds_is_refused(schema: Any, text: str) -> None:
    with within_seconds(), pytest.raises(SchemaError, match="not a valid Avro schema") as caught:
        AvroSchema(schema)
    assert text in str(caught.value)


@pytest.mark.parametrize("step", [Decode, Encode])
def test_neighbours_4_a_schema_is_refused_at_its_field(step: type[Decode | Encode]) -> None:
    with pytest.raises(ValidationError, match="always contains itself") as caught:
        step(format="avro", avro_schema={"type": "record", "name": "r", "fields": [{"name": "a", "type": "r"}]})
    assert [error["loc"] for error in caught.value.errors()] == [("avro_schema",)]


def test_neighbours_4_a_wide_schema_is_parsed_in_a_short_time() -> None:
    fields = [{"name": f"f{number}", "type": ["null", "int"], "default": None} for number in range(20_000)]
    with within_seconds():
        AvroSchema({"type": "record", "name": "wide", "fields": fields})
        AvroSchema({"type": "enum", "name": "e", "symbols": [f"s{number}" for number in range(100_000)]})


# Files.

_CODECS = ["null", "deflate", "bzip2", "xz", "zstandard"]


@pytest.mark.parametrize("codec", _CODECS)
def test_neighbours_4_files_are_read_as_the_library_reads_them(codec: str) -> None:
    file = io.BytesIO()
    fastavro.writer(file, CHAIN, [{"a": {"a": None}}, {"a": None}] * 20_000, codec, sync_interval=1000)
    expected = list(fastavro.reader(io.BytesIO(file.getvalue())))
    assert list(read_file(io.BytesIO(file.getvalue()))) == expected


@given(written())
def test_neighbours_4_any_file_is_read_as_the_library_reads_it(schema_and_data: tuple[Any, bytes]) -> None:
    schema, binary = schema_and_data
    file = avro_file(schema, binary, count=1)
    assert list(read_file(io.BytesIO(file))) == list(fastavro.reader(io.BytesIO(file)))


@given(st.binary(max_size=200))
def test_neighbours_4_any_bytes_are_no_file_without_being_an_error_of_ours(binary: bytes) -> None:
    for file in (binary, b"Obj\x01" + binary):
        with within_seconds(), pytest.raises(ValueError, match=r"\w"):
            list(read_file(io.BytesIO(file)))


def avro_file(schema: Any, block: bytes, codec: str = "null", count: int = 1, size: int | None = None) -> bytes:
    metadata = by_library(
        {"type": "map", "values": "bytes"}, {"avro.schema": json.dumps(schema), "avro.codec": codec.encode()}
    )
    marker = b"m" * 16
    return b"Obj\x01" + metadata + marker + long(count) + long(len(block) if size is None else size) + block + marker


_PACK: dict[str, Callable[[bytes], bytes]] = {
    "deflate": lambda data: zlib.compress(data, 9)[2:-4],
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstandard": lambda data: ZstdCompressor().compress(data, ZstdCompressor.FLUSH_FRAME),
}


@pytest.mark.parametrize("codec", _PACK)
def test_neighbours_4_a_block_that_unpacks_to_too_much_is_refused(codec: str) -> None:
    block = _PACK[codec](bytes(limits.AVRO_BLOCK_BYTES + 1))
    with within_seconds(), pytest.raises(ValueError, match="unpacks to more than 33,554,432 bytes"):
        list(read_file(io.BytesIO(avro_file("bytes", block, codec))))


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (avro_file(CHAIN, b"\x02" * 5000 + b"\x00"), "nested more than 100 deep"),
        (avro_file({"type": "array", "items": "null"}, long(10**8) + b"\x00"), "more than 1,572,864 values"),
        (avro_file({"type": "record", "name": "r", "fields": [{"name": "a", "type": "r"}]}, b""), "always contains"),
        (avro_file("int", b"\x02", size=-1), "does not have 0 to"),
        (avro_file("int", b"\x02", size=10**15), "does not have 0 to"),
        (avro_file("int", b"\x02")[:-1], "ends early"),
        (avro_file("int", b"\x02")[:-1] + b"x", "damaged"),
        (avro_file("int", b"\x02", "lzo"), "the codec lzo, which cannot be read"),
        (b"Obj\x02", "not an Avro file"),
    ],
)
def test_neighbours_4_a_bad_file_is_refused(file: bytes, text: str) -> None:
    with within_seconds(), pytest.raises(ValueError, match=text):
        list(file_formats.Avro().rows(io.BytesIO(file), 0))
