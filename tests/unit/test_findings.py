"""Each example of the public bug reports that were tried on the product, by the number of its kind."""

import itertools
import json as plain_json
import zlib
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from backend.domain import json, screening
from backend.domain.capabilities import BatchRefusedError, DeliveryError, Receipt
from backend.domain.connector import RuntimeConnector
from backend.domain.errors import ConfigError
from backend.domain.message import Message, new_message_id, utc_now
from backend.domain.pipeline import AnyTransform, OutputConfig, PipelineConfig, PipelineSnapshot
from backend.domain.transforms.base import TransformError
from backend.domain.transforms.chain import Chain
from backend.ingest import requests
from backend.ingest.problems import Problem
from tests.receiver import receiver

CONNECTOR = "0198a7e5-0000-7000-8000-000000000000"
transforms: TypeAdapter[Any] = TypeAdapter(list[AnyTransform])


def run(body: bytes, *steps: dict[str, Any], content_type: str = "application/json") -> list[bytes]:
    message = Message(new_message_id(), "p", 1, b"", body, content_type, utc_now(), ())
    return [result.body for result in Chain(transforms.validate_python(list(steps))).run(body, message)]


def documents(body: bytes, *steps: dict[str, Any]) -> list[Any]:
    return [json.loads(one) for one in run(body, *steps)]


def refusal(body: bytes, *steps: dict[str, Any]) -> str:
    with pytest.raises(TransformError) as refused:
        run(body, *steps)
    return str(refused.value)


def expression(text: str) -> dict[str, Any]:
    return {"type": "expression", "expression": text, "to": "r"}


# -- C3: what a step writes can be read back -------------------------------------


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "a\r\nb", "\n", "\r", 'a"\n"b'])
def test_c3_a_row_of_csv_with_line_breaks_is_one_row(value: str) -> None:
    body = plain_json.dumps({"a": value, "b": "x"}).encode()
    [row] = run(body, {"type": "encode", "format": "csv", "columns": ["a", "b"]})
    assert documents(row, {"type": "decode", "format": "csv", "columns": ["a", "b"]}) == [{"a": value, "b": "x"}]


@pytest.mark.parametrize("delimiter", ['"', "\r", "\n", "\0"])
@pytest.mark.parametrize("step", ["encode", "decode"])
def test_c3_delimiters_that_cannot_separate_are_not_saved(delimiter: str, step: str) -> None:
    with pytest.raises(ValidationError):
        transforms.validate_python([{"type": step, "format": "csv", "columns": ["a"], "delimiter": delimiter}])


def csv_messages(*bodies: bytes, content_type: str = "text/csv; charset=utf-8") -> list[Message]:
    return [
        Message(new_message_id(), "p", 1, str(number).encode(), body, content_type, utc_now(), ())
        for number, body in enumerate(bodies)
    ]


async def test_c3_a_batch_of_csv_rows_is_delivered() -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response()

    async with receiver(answer) as running:
        config = OutputConfig.model_validate({"name": "out", "connector": CONNECTOR, "batch": {"messages": 10}})
        capability: Any = config.bind(RuntimeConnector(type="http", connection={"url": running.url}))
        await capability.open()
        try:
            rows = csv_messages(b'1,"a\nb"', b"2,c")
            assert await capability.deliver(rows) == [Receipt("200")] * 2
            assert [one.replace(b"\r\n", b"|") for one in running.bodies] == [b'1,"a\nb"|2,c|']
            assert running.headers[0]["Content-Type"] == "text/csv; charset=utf-8"
            # Rows and JSON share no request: the engine halves such a batch.
            for other in ("application/json", "text/csv"):
                with pytest.raises(BatchRefusedError):
                    await capability.deliver([*rows, *csv_messages(b"{}", content_type=other)])
            assert len(running.bodies) == 1
            [refused] = await capability.deliver(csv_messages(b"text", content_type="text/plain"))
            assert isinstance(refused, DeliveryError)
        finally:
            await capability.close()


XML = {"type": "encode", "format": "xml"}


@pytest.mark.parametrize("character", ["\0", "\1", "\ufffe"])
def test_c3_xml_refuses_characters_that_it_cannot_hold(character: str) -> None:
    for document in ({"a": f"x{character}"}, {"@a": character}, [character]):
        assert refusal(plain_json.dumps(document).encode(), XML).startswith("Step 1 (encode): ")


@pytest.mark.parametrize("name", ["1a", "", "-a", "@", "@1x"])
def test_c3_xml_refuses_names_that_it_cannot_hold(name: str) -> None:
    for document in ({name: 1}, {"a": {name: {"b": 1}}}):
        assert refusal(plain_json.dumps(document).encode(), XML).startswith("Step 1 (encode): ")


def test_c3_xml_refuses_an_object_as_an_attribute() -> None:
    assert "{'" not in refusal(b'{"@x":{"y":1}}', XML)


def test_c3_xml_keeps_the_blanks_of_a_text() -> None:
    [written] = run(b'{"a":"  x \\n"}', {**XML, "root": "m"})
    assert documents(written, {"type": "decode", "format": "xml"}) == [{"m": {"a": "  x \n"}}]


AVRO_TYPES = [
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, b"\x04\x04\xd2"),
    ("bytes", b"\x04\x00\xff"),
    ({"type": "fixed", "name": "f", "size": 2}, b"\x00\xff"),
    ({"type": "long", "logicalType": "timestamp-millis"}, b"\x80\xb0\x9a\xa4\xc2\x63"),
    ({"type": "int", "logicalType": "time-millis"}, b"\x80\x01"),
    ({"type": "fixed", "name": "d", "size": 12, "logicalType": "duration"}, bytes(range(12))),
    (["string", "bytes"], b"\x02\x02a"),
    (["string", "bytes"], b"\x00\x02a"),
]


@pytest.mark.parametrize(("schema", "datum"), AVRO_TYPES)
def test_c3_avro_writes_what_it_has_read(schema: Any, datum: bytes) -> None:
    both = {"format": "avro", "avro_schema": schema}
    assert run(datum, {"type": "decode", **both}, {"type": "encode", **both}) == [datum]


@pytest.mark.parametrize(("body", "schema"), [(b"1.5", "int"), (b"2147483648", "int"), (b"true", "double")])
def test_c3_avro_changes_no_value_without_a_word(body: bytes, schema: str) -> None:
    error = refusal(body, {"type": "encode", "format": "avro", "avro_schema": schema})
    assert "does not fit the Avro schema" in error


# -- C4: no value is lost without a word ------------------------------------------


def test_c4_flatten_refuses_two_fields_of_one_name_in_either_order() -> None:
    fields = [('"a"', '{"b":1}'), ('"a_b"', "2")]
    for order in itertools.permutations(fields):
        body = "{" + ",".join(f"{name}:{value}" for name, value in order) + "}"
        assert "would both become a_b" in refusal(body.encode(), {"type": "flatten"})


@pytest.mark.parametrize("header", [b"id,amount,amount", b"id,,"])
def test_c4_a_header_of_csv_that_would_lose_values_is_refused(header: bytes) -> None:
    assert "give the names of the columns" in refusal(header + b"\n7,10,99", {"type": "decode", "format": "csv"})


def test_c4_repeated_columns_are_not_saved() -> None:
    with pytest.raises(ValidationError, match="more than once"):
        transforms.validate_python([{"type": "decode", "format": "csv", "columns": ["a", "b", "a"]}])


@pytest.mark.parametrize("body", [b"[1,2]", b'"text"', b"3", b"null"])
def test_c4_keep_needs_an_object(body: bytes) -> None:
    assert refusal(body, {"type": "keep", "paths": ["a"]}).endswith("The message is not an object.")


@pytest.mark.parametrize("content_type", ["text/plain", "application/octet-stream", "application/json"])
def test_c4_a_compressed_body_is_unpacked_whatever_its_type(content_type: str) -> None:
    packed = zlib.compress(b'{"a":1}', wbits=zlib.MAX_WBITS | 16)
    headers = {b"content-encoding": [b"gzip"], b"content-type": [content_type.encode()]}
    assert requests.unpacked(headers, packed) == b'{"a":1}'
    with pytest.raises(Problem) as unknown:
        requests.unpacked({b"content-encoding": [b"compress"]}, packed)
    assert unknown.value.status == 415
    assert (b"accept-encoding", b"gzip, deflate, br, zstd") in unknown.value.headers()
    with pytest.raises(Problem) as large:
        requests.unpacked(headers, zlib.compress(bytes(2**20), wbits=zlib.MAX_WBITS | 16))
    assert large.value.status == 413


def test_c4_csv_is_read_by_the_charset_of_its_type() -> None:
    body = "nome\nJoão".encode("latin-1")
    step = {"type": "decode", "format": "csv"}
    [one] = run(body, step, content_type="text/csv; charset=ISO-8859-1")
    assert json.loads(one) == {"nome": "João"}


# -- C5: numbers -------------------------------------------------------------------


def test_c5_numbers_that_an_expression_cannot_hold_are_errors() -> None:
    for number in ("340282366920938463463374607431768211456", "1e400"):
        assert "out of range" in refusal(f'{{"a":{number}}}'.encode(), expression("message.a"))


@pytest.mark.xfail(strict=True, reason="The library of CEL turns integers into doubles where it compares the two.")
@pytest.mark.parametrize(
    ("body", "text", "result"),
    [
        (b'{"a":9007199254740993}', "message.a == 9007199254740992.0", False),
        (b'{"a":9223372036854775807}', "message.a < 9223372036854775808.0", True),
    ],
)
def test_c5_an_expression_compares_integers_and_doubles_exactly(body: bytes, text: str, result: bool) -> None:
    [one] = documents(body, expression(text))
    assert one["r"] is result


def test_c5_a_number_out_of_range_is_refused_in_a_configuration() -> None:
    with pytest.raises(ConfigError) as refused:
        screening.load_json(b'{"config":{"transforms":[{"type":"set","path":"a","value":1e400}]}}')
    assert "out of range" in str(refused.value.errors)


@pytest.mark.parametrize(("body", "kept"), [(b'{"a":true}', 0), (b'{"a":1}', 1), (b'{"a":1.0}', 1)])
def test_c5_drop_unless_compares_as_filters_do(body: bytes, kept: int) -> None:
    assert len(run(body, {"type": "drop_unless", "path": "a", "condition": "equals", "value": 1})) == kept


# -- C6: documents of REST requests that nothing can hold --------------------------


@pytest.mark.parametrize("text", [r'{"config":{"a":"x\u0000"}}', r'{"config":{"a":"\ud800"}}'])
def test_c6_characters_that_cannot_be_stored_are_refused_with_their_path(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        screening.load_json(text.encode())
    assert list(refused.value.errors) == ["config.a"]


@pytest.mark.parametrize("depth", [500, 2000, 200_000])
def test_c6_documents_that_are_nested_too_deeply_are_refused(depth: int) -> None:
    for opening, closing in (("[", "]"), ('{"not":', "}")):
        with pytest.raises(ConfigError):
            screening.load_json((opening * depth + "1" + closing * depth).encode())


# -- C7: times ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "value"),
    [("%a, %d %b %Y %H:%M:%S %Z", "Tue, 05 Mar 2024 09:15:30 GMT"), ("%Y-%m-%dT%H:%M:%SZ", "2024-03-05T09:15:30Z")],
)
def test_c7_what_a_text_says_of_its_zone_wins(pattern: str, value: str) -> None:
    step = {"type": "timestamp", "path": "t", "read": pattern, "write": "unix", "time_zone": "America/Sao_Paulo"}
    assert documents(plain_json.dumps({"t": value}).encode(), step) == [{"t": 1709630130}]


@pytest.mark.parametrize("pattern", ["%Q", "%Y %", "%", ""])
def test_c7_patterns_by_which_nothing_can_be_read_are_not_saved(pattern: str) -> None:
    with pytest.raises(ValidationError):
        transforms.validate_python([{"type": "timestamp", "path": "t", "read": pattern}])


def test_c7_a_leap_second_that_cannot_be_is_no_time() -> None:
    schema = {"type": "validate", "json_schema": {"type": "string", "format": "date-time"}}
    assert "Step 1" in refusal(b'"2016-12-30T23:59:60Z"', schema)
    assert run(b'"2016-12-31T23:59:60Z"', schema) == [b'"2016-12-31T23:59:60Z"']


# -- C10: texts ----------------------------------------------------------------------

PYTHONS_WORDS = ("Error", "<class", "argument of type", "field limit", "not iterable", "NoneType", "Traceback")


@pytest.mark.parametrize(
    ("body", "step"),
    [
        (b"{}", expression("message.k")),
        (b'{"a":1}', expression("'x' in message.a")),
        (b'{"a":"x"}', expression("message.a + 1")),
        (b'{"a":1}', expression("message.a.b")),
        (b'{"a":"x"}', {"type": "cast", "path": "a", "into": "number"}),
        (b'{"a":"1e99999999999999999999"}', {"type": "cast", "path": "a", "into": "number"}),
        (b'{"a":"1e99999999999999999999"}', {"type": "cast", "path": "a", "into": "integer"}),
        (b'{"a":1e99999999999999999999}', {"type": "set", "path": "b", "value": 1}),
        (b'a\n"x', {"type": "decode", "format": "csv"}),
    ],
)
def test_c10_reasons_are_not_in_the_words_of_python(body: bytes, step: dict[str, Any]) -> None:
    error = refusal(body, step)
    assert not any(word in error for word in PYTHONS_WORDS), error
    assert "'k'" not in error


@given(st.sampled_from(["message.a.b", "message.a + message.b", "'x' in message.a", "message.a[message.b]"]), st.data())
def test_c10_no_reason_of_an_expression_is_in_the_words_of_python(text: str, data: st.DataObject) -> None:
    values = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
    body = json.dumps({"a": data.draw(values), "b": data.draw(values)})
    said = ""
    try:
        run(body, expression(text))
    except TransformError as error:
        said = str(error)
    assert not any(word in said for word in PYTHONS_WORDS), said


def test_c10_a_field_of_csv_may_be_long() -> None:
    [one] = documents(b"a\n" + b"x" * 200_000, {"type": "decode", "format": "csv"})
    assert len(one["a"]) == 200_000


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
def test_c10_utf_16_is_told_by_its_looks(codec: str) -> None:
    assert "looks like UTF-16" in refusal("naïve;ü".encode(codec), {"type": "decode", "format": "csv"})


@pytest.mark.parametrize(("body", "line"), [(b'\n\n{"a":1}\n\nNaN\n', 5), (b"{", 1), (b"{}\r\n\r\n{\r\n", 3)])
def test_c10_the_line_of_an_ndjson_refusal_counts_blank_lines(body: bytes, line: int) -> None:
    config = PipelineConfig.model_validate({"outputs": [{"name": "out", "connector": CONNECTOR}]})
    pipeline = PipelineSnapshot(id=CONNECTOR, workspace_id=CONNECTOR, version=1, accepting=True, config=config)
    with pytest.raises(Problem) as refused:
        requests.messages(pipeline, "application/x-ndjson", body, {})
    assert refused.value.detail.startswith(f"Line {line} is not JSON")
