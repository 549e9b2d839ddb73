from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from backend.domain import json
from backend.domain.pipeline import AnyTransform
from backend.domain.transforms.base import TransformError
from backend.domain.transforms.chain import Chain, Dropped, Result
from backend.runtime.node import FRONTEND

cases = [
    pytest.param(case, id=f"{path.stem}-{number}")
    for path in sorted((Path(__file__).parent / "transforms").glob("*.yaml"))
    for number, case in enumerate(yaml.safe_load(path.read_text()), 1)
]
transforms = TypeAdapter(list[AnyTransform])


def _text(result: Result) -> str:
    return result.body.hex() if result.content_type == "avro/binary" else result.body.decode()


@pytest.mark.parametrize("case", cases)
def test_table(case: dict[str, Any]) -> None:
    run = Chain(transforms.validate_python(case["steps"])).run
    body = bytes.fromhex(case["input_hex"]) if "input_hex" in case else case["input"].encode()
    if "error" in case:
        with pytest.raises(TransformError) as refused:
            run(body)
        assert str(refused.value).startswith(case["error"])
    else:
        assert [_text(result) for result in run(body)] == case["output"]


OF_A_FIELD: list[dict[str, Any]] = [
    {"type": "copy", "to": "a.b"},
    *({"type": "cast", "into": into} for into in ("string", "integer", "number", "boolean")),
    {"type": "default", "value": {"a": 1}},
    {"type": "template", "template": "{{a}} {{b.0}}"},
    {"type": "map", "table": {"1": 2}, "otherwise": []},
    {"type": "split"},
    {"type": "join", "to": "b"},
    *({"type": "timestamp", "read": read} for read in ("iso8601", "unix", "%Y")),
    {"type": "hash"},
    {"type": "uuid", "of": ["a"]},
    *({"type": "mask", "how": how} for how in ("redact", "partial", "hash")),
]
OF_A_DOCUMENT: list[dict[str, Any]] = [
    {"type": "flatten", "lists": True},
    {"type": "validate", "json_schema": {"type": "object", "required": ["a"]}, "invalid": "flag", "flag": "a.b"},
    {"type": "expression", "expression": "message.a + message.b", "to": "b"},
    {"type": "expression", "expression": "message.a.map(x, x)", "to": "b"},
]
names = st.sampled_from(["a", "b", "0"])
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
)
paths = st.lists(names, min_size=1, max_size=3).map(".".join)
steps = st.one_of(
    st.builds(lambda path, value: {"type": "set", "path": path, "value": value}, paths, documents),
    st.builds(lambda path, to: {"type": "rename", "path": path, "to": f"z.{to}"}, paths, paths),
    st.builds(
        lambda path, value: {"type": "drop_unless", "path": path, "condition": "less_than", "value": value},
        paths,
        documents,
    ),
    st.builds(lambda more, path: more | {"path": path}, st.sampled_from(OF_A_FIELD), paths),
    st.builds(
        lambda more, path: more | {"paths": [path]}, st.sampled_from([{"type": "keep"}, {"type": "remove"}]), paths
    ),
    st.sampled_from(OF_A_DOCUMENT),
)


@given(st.lists(steps, max_size=4), documents)
def test_any_json_gives_documents_or_a_transform_error_and_always_the_same(
    configured: list[dict[str, Any]], document: object
) -> None:
    run = Chain(transforms.validate_python(configured)).run
    body = json.dumps(document)

    def outcome() -> object:
        try:
            return run(body)
        except TransformError as error:
            return str(error)

    first = outcome()
    # A list that CEL makes of an object's entries has no order, and what later steps make of it may differ.
    if not any(step["type"] == "expression" for step in configured):
        assert outcome() == first


@pytest.mark.parametrize(
    "step",
    [
        {"type": "rename", "path": "a", "to": "a"},
        {"type": "rename", "path": "a", "to": "a.b"},
        {"type": "drop_unless", "path": "a", "condition": "in", "value": 1},
        {"type": "set", "path": "a..b", "value": 1},
        {"type": "set", "path": "a", "valeu": 1},
        {"type": "unknown"},
        {"type": "expression", "expression": "1 +"},
        {"type": "expression", "expression": "message.all(x, message.exists(y, x == y))"},
        {"type": "validate", "json_schema": {"type": "thing"}},
        {"type": "validate", "json_schema": {"$ref": "http://127.0.0.1:1/"}},
        {"type": "timestamp", "path": "a", "time_zone": "Mars/Olympus"},
        {"type": "template", "path": "a", "template": "{{a..b}}"},
        {"type": "decode", "format": "avro", "avro_schema": {"type": "thing"}},
        {"type": "encode", "format": "csv"},
    ],
)
def test_senseless_steps_are_refused(step: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        transforms.validate_python([step])


ANY_STEPS = [step | {"path": "a"} for step in OF_A_FIELD] + OF_A_DOCUMENT
HOSTILE = {
    "deep list": b"[" * 100_000 + b"]" * 100_000,
    "deep object": b'{"a":' * 900 + b"1" + b"}" * 900,
    "huge number": b'{"a":' + b"9" * 5000 + b"}",
    "huge exponent": b'{"a":1e999999999}',
    "long text": b'{"a":"' + b"a" * 1_000_000 + b'"}',
    "long list": b'{"a":[' + b"1," * 400_000 + b"1]}",
    "not UTF-8": b'{"a":"\xff\xfe"}',
    "lone surrogate": b'{"a":"\\ud800"}',
    "nothing": b"",
    "null": b"null",
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("step", ANY_STEPS, ids=[f"{step['type']}-{n}" for n, step in enumerate(ANY_STEPS)])
def test_hostile_messages_are_taken_or_refused_with_a_sentence(step: dict[str, Any], body: bytes) -> None:
    try:
        Chain(transforms.validate_python([step])).run(body)
    except TransformError as error:
        assert len(str(error)) < 1000  # noqa: PT017  (most are taken)


@pytest.mark.parametrize("format", ["csv", "xml"])
@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(format: str, body: bytes) -> None:
    with suppress(TransformError):
        Chain(transforms.validate_python([{"type": "decode", "format": format}])).run(body)


def test_a_loop_is_bounded() -> None:
    loop = {"type": "expression", "expression": "message.all(x, message == [])"}
    run = Chain(transforms.validate_python([loop])).run
    with pytest.raises(TransformError, match="at most 2000 values"):
        run(json.dumps(list(range(3000))))


def test_the_step_that_ends_a_message_is_named_by_its_number() -> None:
    keep = {"type": "drop_unless", "path": "n", "condition": "less_than", "value": 5}
    cast = {"type": "cast", "path": "a", "into": "integer"}
    chain = Chain(transforms.validate_python([{"type": "set", "path": "x", "value": 1}, keep, cast]))
    dropped = chain.run(b'{"n": 9, "a": 1}')
    assert isinstance(dropped, Dropped)
    assert (dropped, dropped.step) == ([], 2)
    with pytest.raises(TransformError) as failed:
        chain.run(b'{"n": 1, "a": "not a number"}')
    assert failed.value.step == 3


def test_the_templates_of_the_editor_are_valid() -> None:
    templates = json.loads((FRONTEND / "src/features/pipelines/flow/templates.json").read_bytes())
    for template in templates.values():
        Chain(transforms.validate_python(template.get("transforms", [])))
