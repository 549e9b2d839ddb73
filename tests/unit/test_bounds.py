"""Decoders, schemas, expressions and templates take little memory and time, whatever is in a message or a step."""

import io
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from backend.connectors.parts.files import formats as file_formats
from backend.domain import json, limits, templates
from backend.domain.reasons import Reason
from backend.domain.transforms.base import Transform, TransformError
from backend.domain.transforms.chain import Chain
from backend.domain.transforms.decode import Decode
from backend.domain.transforms.expression import Expression
from backend.domain.transforms.template import Template
from backend.domain.transforms.timestamp import Timestamp
from backend.domain.transforms.validate import Validate

SECONDS = 5
"""Far more than is needed, and far less than what is not bounded takes."""
XML, CSV = Decode(format="xml"), Decode(format="csv")


@contextmanager
def within_seconds() -> Iterator[None]:
    begin = time.process_time()
    yield
    assert time.process_time() - begin < SECONDS


def run(step: Transform, body: bytes) -> bytes:
    with within_seconds():
        [result] = Chain([step]).run(body)
    return result.body


def refused(step: Transform, body: bytes) -> tuple[str, str]:
    with within_seconds(), pytest.raises(TransformError) as caught:
        Chain([step]).run(body)
    return caught.value.reason, str(caught.value)


def not_saved(make: Callable[[], Transform], field: str) -> str:
    with within_seconds(), pytest.raises(ValidationError) as caught:
        make()
    [error] = caught.value.errors()
    assert error["loc"] == (field,)
    return error["msg"]


# XML.


@pytest.mark.parametrize("depth", [101, 100_000, 400_000])
def test_neighbours_4_xml_that_is_nested_too_deeply_is_a_dead_letter(depth: int) -> None:
    assert refused(XML, b"<a>" * depth + b"</a>" * depth) == (
        Reason.TOO_LARGE,
        "Step 1 (decode): The message is nested more than 100 deep.",
    )


def test_neighbours_4_xml_is_read_up_to_the_depth() -> None:
    depth = limits.DEPTH
    assert run(XML, b"<a>" * depth + b"x" + b"</a>" * depth) == b'{"a":' * depth + b'"x"' + b"}" * depth


@pytest.mark.parametrize(
    ("declared", "repeated", "what"),
    [
        (b'<!ATTLIST a b CDATA "' + b"v" * 1_000_000 + b'">', b"<a/>", "declarations of attributes are disabled"),
        (b'<!ENTITY b "' + b"v" * 1_000_000 + b'">', b"&b;", "entities are disabled"),
    ],
)
def test_neighbours_4_a_declaration_stands_for_nothing(declared: bytes, repeated: bytes, what: str) -> None:
    _, text = refused(XML, b"<!DOCTYPE a [" + declared + b"]><r>" + repeated * 300_000 + b"</r>")
    assert text == f"Step 1 (decode): This is not valid XML: {what}."


def test_neighbours_4_a_document_type_that_declares_nothing_is_read() -> None:
    assert run(XML, b'<!DOCTYPE a SYSTEM "http://example.com/a.dtd"><a>x</a>') == b'{"a":"x"}'


@given(st.lists(st.sampled_from([b"<a>", b"</a>", b"<a b='c'/>", b"x", b"&amp;", b"<!--x-->", b"<![CDATA[y]]>"])))
def test_neighbours_4_any_xml_is_read_or_refused(pieces: list[bytes]) -> None:
    with suppress(TransformError):
        run(XML, b"<r>" + b"".join(pieces) + b"</r>")


# CSV.


def test_neighbours_4_the_names_of_columns_count_for_each_row() -> None:
    names = b",".join(b"x" * 1000 + b"%d" % number for number in range(1000))
    reason, text = refused(CSV, names + (b"\n" + b"," * 999) * 2000)
    assert (reason, "more than 16,777,216 bytes in total" in text) == (Reason.TOO_LARGE, True)


def test_neighbours_4_rows_of_a_million_columns_are_read_in_a_short_time() -> None:
    body = b",".join(b"%d" % number for number in range(300_000)) + b"\n" + b"," * 299_999
    assert refused(CSV, body)[0] == Reason.TOO_LARGE
    with within_seconds():
        [row] = file_formats.Csv().rows(io.BytesIO(body), 0)
    assert len(json.loads(row.document)) == 300_000


# Expressions.


@pytest.mark.parametrize(
    "text",
    [
        "[1].all(x, [1].all(y, true))",
        "[1].existsOne(x, [1].existsOne(y, true))",
        "[1].all // a comment\n (x, [1]. // another one\n all(y, true))",
        '[1].all // "\n (x, [1].all // "\n (y, true))',
        '[r"\\"].all(x, ["\'"].all(y, true))',
        "['''(''' + \"'\"].all(x, ['''\\''')'''].all(y, true))",
    ],
)
def test_neighbours_4_loops_within_loops_are_found_behind_texts_and_comments(text: str) -> None:
    assert "cannot be nested" in not_saved(lambda: Expression(expression=text), "expression")


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("[1, 2].map(x, x * 2).filter(x, x > 2)", [4]),
        ("[1].all(x, '.all(' != \"[1].all(y, true)\") // .all(x, [1].all(y, true))", True),
        ("['a'].map(x, x.matches('^[a-z]$'))", [True]),
    ],
)
def test_neighbours_4_loops_one_after_the_other_are_none_in_one_another(text: str, result: Any) -> None:
    assert json.loads(run(Expression(expression=text, to="r"), b"{}")) == {"r": result}


@pytest.mark.parametrize(
    ("text", "document"),
    [
        ("[" + ",".join(["message.a"] * 180) + "].size()", {"a": [1] * 1_400_000}),
        ("&&".join(["message.a == message.a"] * 60), {"a": [1] * 1_400_000}),
        ("message.l" + ".map(x, [x, x])" * 100 + ".size()", {"l": [1]}),
        ("message.l" + ".map(x, x + x)" * 100 + ".size()", {"l": ["a"]}),
        ("message.l.map(x, message.l).size()", {"l": list(range(1900))}),
        ("message.l.map(x, message.s).size()", {"l": list(range(1900)), "s": "a" * 2_000_000}),
        ("message.l.all(x, " + "||".join(["message.s.contains('b')"] * 50) + ")", {"l": [1] * 1900, "s": "a" * 10**6}),
        ("message.l.map(x, [" + ",".join(["x"] * 400) + "]).size()", {"l": list(range(1900))}),
    ],
    ids=range(8),
)
def test_neighbours_4_an_expression_copies_only_so_much(text: str, document: Any) -> None:
    assert refused(Expression(expression=text, to="r"), json.dumps(document)) == (
        Reason.TOO_LARGE,
        "Step 1 (expression): The message is too large for this expression.",
    )


@pytest.mark.parametrize(
    "text",
    [
        "message.items.filter(x, x.qty > 1).map(x, {'p': x.price * message.rate, 'n': x.name, 's': x.sku})",
        "message.items.exists(x, x.name.matches('^vip-') || x.sku in message.wanted)",
        "message.items.map(x, x.price).filter(x, x > 1.0).size()",
    ],
)
def test_neighbours_4_an_expression_goes_through_a_list_as_before(text: str) -> None:
    item = {"price": 1.5, "qty": 3, "name": "a name", "sku": "SKU-1"}
    run(Expression(expression=text, to="r"), json.dumps({"items": [item] * 350, "rate": 2.5, "wanted": ["SKU-2"] * 10}))


def test_neighbours_4_a_regular_expression_of_a_message_has_a_size() -> None:
    step = Expression(expression="message.a.matches(message.p)", to="r")
    assert json.loads(run(step, b'{"a": "abc", "p": "b"}'))["r"] is True
    assert refused(step, json.dumps({"a": "b", "p": "a?" * 700_000})) == (
        Reason.TOO_LARGE,
        "Step 1 (expression): The message is too large to take regular expressions from it.",
    )
    message = not_saved(lambda: Expression(expression="['a'].all(x, x.matches(message.p))"), "expression")
    assert "has to be a text" in message


# JSON Schema.


def test_neighbours_4_errors_of_recursive_alternatives_are_not_all_made() -> None:
    branches = [{"properties": {"a": {"$ref": "#"}}, "required": [name]} for name in "xy"]
    for schema in (
        {"anyOf": branches},
        json.loads(
            json.dumps({"$ref": "#/$defs/n", "$defs": {"n": {"oneOf": branches}}}).replace(b'"#"', b'"#/$defs/n"')
        ),
    ):
        assert refused(Validate(json_schema=schema), b'{"a":' * 40 + b"1" + b"}" * 40) == (
            "transform_failed",
            "Step 1 (validate): The message does not fit the JSON Schema, and is too large for it to say where.",
        )


def test_neighbours_4_alternatives_that_are_not_recursive_are_explained() -> None:
    schema = {
        "properties": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]}, "b": {"$ref": "#/$defs/b"}},
        "$defs": {"a": {"required": ["x"], "properties": {"b": {"$ref": "#/$defs/b"}}}, "b": {"type": "string"}},
    }
    assert refused(Validate(json_schema=schema), b'{"a": {}, "b": 1}')[1].endswith(
        "a: {} is not valid under any of the schemas listed in the 'anyOf' keyword; b: 1 is not of type \"string\""
    )


@pytest.mark.parametrize(
    ("schema", "document", "text"),
    [
        ({"items": {"enum": [[-number] for number in range(1, 1000)]}}, [[n] for n in range(90_000)], "0: [0] is not"),
        ({"items": {"type": "string"}}, list(range(300_000)), '0: 0 is not of type "string"'),
        ({"items": {"anyOf": [{"items": {"type": "string"}}] * 20}}, [list(range(300_000))], "too large for it to say"),
    ],
)
def test_neighbours_4_a_large_message_has_few_errors(schema: Any, document: Any, text: str) -> None:
    assert text in refused(Validate(json_schema=schema), json.dumps(document))[1]


# Templates and times.


@pytest.mark.parametrize(
    "text", ["{{" + " " * 9_900, "{{" * 5000, "{{a " * 2500, "{{a" + " " * 9_900, "{{a\nb" * 1500 + "}}"]
)
def test_neighbours_4_a_template_is_read_in_a_short_time(text: str) -> None:
    assert json.loads(run(Template(path="t", template=text), b"{}")) == {"t": text}


@given(st.lists(st.sampled_from(["text", "{ ", "} ", " ", "\n", "{{", "{{a}}", "{{ b.c }}", "{{d\n}}"])))
def test_neighbours_4_placeholders_are_what_is_between_two_braces(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert templates.placeholders(text) == re.findall(r"\{\{\s*(.+?)\s*\}\}", text)


def test_neighbours_4_a_pattern_of_times_that_no_time_has_is_refused() -> None:
    assert "has a part twice" in not_saved(lambda: Timestamp(path="a", read="%Y-%m-%d %Y"), "read")
