"""Steps that use what is known of a message beside its body."""

import uuid
from typing import Any

import pytest
from msgspec.structs import replace
from pydantic import TypeAdapter, ValidationError

from backend.connectors.http.call import CallRequest, HttpCall, HttpCallOptions
from backend.connectors.http.connection import HttpConnection
from backend.domain import json, routing
from backend.domain.examples import Example, check_examples
from backend.domain.message import SOURCE_HEADERS, Message, SourceHeader, source_fields
from backend.domain.message_templates import Metadata
from backend.domain.pipeline import AnyTransform, PipelineConfig, PipelineSnapshot
from backend.domain.reasons import Reason
from backend.domain.transforms.base import StepResources, TransformError
from backend.domain.transforms.chain import Chain
from backend.settings import Settings
from spark_jobs.jobs.adapting_transformer import Transformer
from spark_jobs.streaming.lane import LaneServices

transforms = TypeAdapter(list[AnyTransform])
HEADERS: list[SourceHeader] = [("tenant", b"a"), ("tenant", b"b"), ("x.y", b"\xff"), ("null", None)]
MESSAGE = Message(
    "0199d1a0-0000-7000-8000-000000000001",
    "0199d1a0-0000-7000-8000-000000000002",
    3,
    b"k",
    b"{}",
    "application/json",
    "2026-02-03T04:05:06.000Z",
    (routing.ADAPTED,),
    source_fields("orders", HEADERS),
)
EVERYTHING = {
    "id": MESSAGE.id,
    "key": "k",
    "received_at": MESSAGE.received_at,
    "content_type": "application/json",
    "pipeline": MESSAGE.pipeline_id,
    "version": 3,
    "source": "orders",
    "headers": {"tenant": "b", "x.y": "\ufffd", "null": ""},
}


def template(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "template", "path": "r", "template": text, **more}


def expression(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "expression", "expression": text, **more}


def documents(steps: list[dict[str, Any]], document: Any, message: Message = MESSAGE) -> list[Any]:
    chain = Chain(transforms.validate_python(steps))
    return [json.loads(result.body) for result in chain.run(json.dumps(document), message)]


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (template("{{$message.id}}/{{ $message.source }}/{{n}}"), f"{MESSAGE.id}/orders/7"),
        (template("{{$message.headers.tenant}}{{/$message/headers/x.y}}{{$message.headers.null}}"), "b\ufffd"),
        (template("{{$message.key}} {{$message.received_at}} {{$message.version}}"), f"k {MESSAGE.received_at} 3"),
        (template("-{{$message.headers.none}}-"), "--"),
        (expression("metadata.headers.tenant + string(message.n)", to="r"), "b7"),
        (expression("metadata . source", to="r"), "orders"),
        (expression("has(metadata.headers.none)", to="r"), False),
        (expression("metadata", to="r"), EVERYTHING),
        (expression("metadata.headers.exists(name, name == 'x.y')", to="r"), True),
    ],
)
def test_a_step_sees_what_is_known_of_the_message(step: dict[str, Any], expected: Any) -> None:
    assert documents([step], {"n": 7}) == [{"n": 7, "r": expected}]


def test_an_expression_decides_by_it() -> None:
    assert documents([expression("metadata.source == 'orders'")], {}) == [{}]
    assert documents([expression("metadata.source == 'users'")], {}) == []


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (template("{{$message.headers.none}}", on_missing="dead_letter"), "no field $message.headers.none"),
        (expression("metadata.headers.none", to="r"), "The expression failed"),
    ],
)
def test_what_is_missing_is_treated_as_a_missing_field(step: dict[str, Any], error: str) -> None:
    with pytest.raises(TransformError, match=f"Step 1 .*{error.replace('$', '[$]')}"):
        documents([step], {})


def test_all_messages_that_are_made_of_one_see_the_same() -> None:
    steps = [
        {"type": "split", "path": "items", "keep_rest": False},
        template("{{$message.id}}"),
        expression("metadata.id", to="s"),
    ]
    ids = {"r": MESSAGE.id, "s": MESSAGE.id}
    assert documents(steps, {"items": [{"n": 1}, {"n": 2}]}) == [{"n": 1} | ids, {"n": 2} | ids]


@pytest.mark.parametrize(
    "text", ["{{$message}}", "{{$message.no}}", "{{$message.headers}}", "{{$message.headers.a.b}}"]
)
def test_what_is_not_known_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match=r"\$message\.headers\.NAME"):
        transforms.validate_python([template(text)])


def test_nothing_is_made_of_headers_that_no_step_asks_for() -> None:
    unreadable = replace(MESSAGE, extra={SOURCE_HEADERS: "no JSON"})
    steps = [template("{{metadata}}"), expression("message.metadata == 7 && message . metadata == 7")]
    assert documents([*steps, template("{{$message.id}}")], {"metadata": 7}, unreadable) == [
        {"metadata": 7, "r": MESSAGE.id}
    ]
    with pytest.raises(TransformError):
        documents([template("{{$message.headers.a}}")], {}, unreadable)


def test_headers_count_where_an_expression_has_limits() -> None:
    many = replace(MESSAGE, extra=source_fields("", [(str(number), b"") for number in range(2500)]))
    with pytest.raises(TransformError, match="at most 2000 values"):
        documents([expression("metadata.headers.map(x, x)", to="r")], {}, many)
    long = replace(MESSAGE, extra=source_fields("", [(str(number), b"x" * 60) for number in range(500)]))
    with pytest.raises(TransformError, match="too large") as refused:
        documents([expression("metadata.headers.map(x, metadata.headers)", to="r")], {}, long)
    assert refused.value.reason == Reason.TOO_LARGE
    pattern = replace(MESSAGE, extra=source_fields("", [("pattern", b"(a{1,1000}){1,1000}")]))
    with pytest.raises(TransformError, match="regular expression"):
        documents([expression("message.text.matches(metadata.headers.pattern)")], {"text": "a"}, pattern)


async def test_steps_that_wait_stand_beside_them() -> None:
    steps = [
        template("{{$message.source}}"),
        {"type": "deduplicate", "paths": ["n"]},
        expression("metadata.key", to="k"),
    ]
    chain = Chain(transforms.validate_python(steps))
    trace = await chain.trace(b'{"n": 1}', StepResources({}), MESSAGE)
    assert [step.passed_over for step in trace.steps] == [False, True, False]
    assert [json.loads(result.body) for result in trace.results] == [{"n": 1, "r": "orders", "k": "k"}]


def test_examples_have_the_same_id_and_time_each_time() -> None:
    steps = transforms.validate_python([template("{{$message.id}} {{$message.received_at}}{{$message.headers.a}}")])
    expected = {"r": "00000000-0000-7000-8000-000000000000 2000-01-01T00:00:00.000Z"}
    example = Example(name="x", input="{}", outputs=[json.dumps(expected).decode()])
    assert check_examples(steps, [example]) == [""]


def test_a_request_to_an_api_is_made_of_it() -> None:
    options = {"path": "/{{$message.source}}/{{n}}?t={{$message.headers.tenant}}", "body": {"id": "{{$message.id}}"}}
    connection = HttpConnection.model_validate({"url": "https://api.example.com"})
    call = HttpCall(connection, HttpCallOptions.model_validate({"method": "POST", **options}))
    asked = call.request()({"n": 7}, Metadata(MESSAGE))
    assert asked == CallRequest("POST", "/orders/7?t=b", json.dumps({"id": MESSAGE.id}))
    for wrong in ({"path": "/{{$message.no}}"}, {"body": ["{{$message.no}}"]}):
        with pytest.raises(ValidationError, match=r"\$message\.headers\.NAME"):
            HttpCallOptions.model_validate(wrong)


class Known:
    """The configuration client, answered from memory, and a recorder of nothing."""

    def __init__(self, *steps: dict[str, Any]) -> None:
        config = PipelineConfig.model_validate({"transforms": steps, "index": [{"name": "r", "path": "r"}]})
        self.snapshot = PipelineSnapshot(
            id=uuid.UUID(MESSAGE.pipeline_id), workspace_id=uuid.uuid4(), version=3, accepting=True, config=config
        )

    async def version(self, _key: str, _version: int) -> PipelineSnapshot:
        return self.snapshot

    def count(self, *_: object) -> None: ...

    def error(self, *_: object, **__: object) -> None: ...


async def test_the_adapting_lane_gives_steps_the_message() -> None:
    known = Known(template("{{$message.headers.tenant}} {{$message.id}}"))
    services: Any = LaneServices(known, known, Settings(), 1, lambda _: 0)  # type: ignore[arg-type]
    transformer = Transformer(services)
    try:
        [record] = transformer.run(MESSAGE, await transformer.version(MESSAGE))
    finally:
        await transformer.close()
    assert json.loads(record.value or b"") == {"r": f"b {MESSAGE.id}"}


def test_texts_are_decoded_by_the_charset_of_their_content_type() -> None:
    latin = replace(MESSAGE, content_type="text/csv; header=present; charset=ISO-8859-1")
    for step, body in (
        ({"type": "decode", "format": "csv"}, "name\nJoão"),
        ({"type": "decode", "format": "xml"}, "<name>João</name>"),
    ):
        chain = Chain(transforms.validate_python([step]))
        assert [json.loads(result.body) for result in chain.run(body.encode("latin-1"), latin)] == [{"name": "João"}]
        with pytest.raises(TransformError, match=r"charset in the content type|not well-formed"):
            chain.run(body.encode("latin-1"), replace(latin, content_type="text/plain"))
