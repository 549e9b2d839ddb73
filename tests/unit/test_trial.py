"""What a dry run shows is what the stages hand on and what receivers get."""

import json
import uuid
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from backend.domain import routing, trial
from backend.domain.capabilities import DeliveryError
from backend.domain.connector import RuntimeConnector
from backend.domain.json import InvalidJsonError
from backend.domain.limits import TooLargeError
from backend.domain.message import DEAD_ERROR, FILTERED, INDEX, Message
from backend.domain.offering import record_for
from backend.domain.pipeline import OutputConfig, PipelineConfig, PipelineSnapshot
from backend.domain.transforms.base import StepResources
from backend.ingest import requests
from backend.ingest.problems import Problem
from backend.settings import Settings
from spark_jobs.jobs.adapting_transformer import Transformer
from spark_jobs.streaming.lane import LaneServices
from tests.receiver import receiver

CONNECTOR = "0198a7e5-0000-7000-8000-000000000000"
OUTPUT = {"name": "out", "connector": CONNECTOR}
INDEXED = [{"name": "country", "path": "country"}, {"name": "n", "path": "n", "type": "number"}]
CSV = [{"type": "decode", "format": "csv"}, {"type": "encode", "format": "csv", "columns": ["a", "b"]}]
AVRO = {
    "avro_schema": {
        "type": "record",
        "name": "r",
        "fields": [{"name": "n", "type": "double"}, {"name": "kind", "type": "string", "default": "order"}],
    }
}


def snapshot_of(**config: Any) -> PipelineSnapshot:
    return PipelineSnapshot(
        id=uuid.uuid4(),
        workspace_id=uuid.uuid4(),
        version=3,
        accepting=True,
        config=PipelineConfig.model_validate({"outputs": [OUTPUT], **config}),
        schema_id=0,
    )


class Known:
    """The configuration client, answered from memory, and a recorder."""

    def __init__(self, snapshot: PipelineSnapshot) -> None:
        self.snapshot = snapshot

    async def version(self, _key: str, _version: int) -> PipelineSnapshot:
        return self.snapshot

    def count(self, *_: object, **__: object) -> None: ...

    def error(self, *_: object, **__: object) -> None: ...


async def handed_on(snapshot: PipelineSnapshot, message: Message) -> list[Message]:
    """What the stage makes of a message."""
    known = Known(snapshot)
    services: Any = LaneServices(known, known, Settings(), 1, lambda _: 0)  # type: ignore[arg-type]
    transformer = Transformer(services)
    try:
        records = transformer.run(message, await transformer.version(message))
    finally:
        await transformer.close()
    return [Message.from_kafka(key=one.key, value=one.value, headers=one.headers) for one in records]


documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.sampled_from("abn"), parts, max_size=3),
    max_leaves=9,
)
samples = documents.map(json.dumps).map(str.encode) | st.binary(max_size=30)
ways = st.sampled_from(
    [
        {"transforms": [{"type": "rename", "path": "a", "to": "b"}], "index": INDEXED},
        {"transforms": [{"type": "split", "path": "a"}], "index": INDEXED},
        {"transforms": [{"type": "drop_unless", "path": "a", "condition": "exists"}]},
        {"transforms": [{"type": "set", "path": "a.b", "value": 1}, {"type": "flatten"}]},
        {"transforms": CSV},
        {"transforms": [{"type": "encode", "format": "xml"}]},
        {"stream_processing": AVRO, "outputs": []},
    ]
)


@given(samples, ways, st.sampled_from(["application/json", "text/csv; charset=latin-1", "application/octet-stream"]))
async def test_a_trial_hands_on_what_the_stage_does(body: bytes, way: dict[str, Any], content_type: str) -> None:
    snapshot = snapshot_of(**way)
    try:
        message = trial.sample(snapshot, body, content_type)
    except InvalidJsonError:
        with pytest.raises(Problem):
            requests.messages(snapshot, content_type, body, {})
        return
    tried = await trial.tried(snapshot, message, StepResources({}))
    real = await handed_on(snapshot, message)
    if tried.error:
        [letter] = real
        assert letter.extra[DEAD_ERROR] == tried.error
    else:
        assert tried.messages == real


@given(samples, st.sampled_from(["application/json", "application/x-ndjson", "text/plain"]))
def test_a_sample_enters_as_it_would_by_http(body: bytes, content_type: str) -> None:
    snapshot = snapshot_of(index=INDEXED)
    try:
        topic, made = requests.messages(snapshot, content_type, body, {})
    except Problem:
        with pytest.raises((InvalidJsonError, trial.SampleError)):
            trial.sample(snapshot, body, content_type)
        return
    if len(made) > 1:
        with pytest.raises(trial.SampleError, match="try one at a time"):
            trial.sample(snapshot, body, content_type)
        return
    [real] = made
    sample = trial.sample(snapshot, body, content_type)
    assert topic == routing.INPUT
    assert replace(sample, id=real.id, key=real.key, received_at=real.received_at) == real


def test_c10_a_dry_run_without_steps_never_shows_nan_as_delivered() -> None:
    for body in (b"NaN", b'{"a": NaN}', b"[Infinity]", b"{"):
        with pytest.raises(InvalidJsonError):
            trial.sample(snapshot_of(), body, "application/json")


def test_a_sample_of_a_filter_enters_as_the_filter_hands_it_over() -> None:
    condition = {"type": "equals", "field": "country", "value": "BR"}
    snapshot = snapshot_of(input={"type": "filter", "condition": condition}, index=INDEXED)
    sample = trial.sample(snapshot, b'{"n": 1.10}', "application/json")
    assert json.loads(sample.extra[INDEX]) == {"n": 1.1}
    assert sample.extra[FILTERED] == ""
    real = record_for(snapshot, replace(sample, extra={}), ["another"])
    assert dict(real.headers)[INDEX].decode() == sample.extra[INDEX]
    with pytest.raises(TooLargeError, match="filtered by"):
        trial.sample(snapshot, json.dumps({"country": "x" * 70_000}).encode(), "application/json")


async def test_avro_that_is_handed_over_is_shown_as_its_reader_has_it() -> None:
    snapshot = snapshot_of(stream_processing=AVRO, outputs=[])
    tried = await trial.tried(snapshot, trial.sample(snapshot, b'{"n": 1}', "application/json"), StepResources({}))
    [message] = tried.messages
    shown, is_base64 = trial.shown(message.body, message.content_type, snapshot.config)
    assert json.loads(shown) == {"n": 1.0, "kind": "order"}
    assert not is_base64
    refused = await trial.tried(snapshot, trial.sample(snapshot, b'{"n": "x"}', "application/json"), StepResources({}))
    assert refused.error.startswith("Stream processing: n does not fit")
    assert refused.messages == []


def test_what_is_no_text_is_shown_in_base64() -> None:
    assert trial.text(b"\xff\x00") == ("/wA=", True)
    assert trial.text("é".encode()) == ("é", False)


async def test_documents_too_deep_to_be_shown_do_not_end_a_trial() -> None:
    snapshot = snapshot_of(transforms=[{"type": "rename", "path": "a", "to": "b"}])
    for depth in (100, 400, 900):
        body = b'{"a":' * depth + b"1" + b"}" * depth
        try:
            message = trial.sample(snapshot, body, "application/json")
        except InvalidJsonError:
            continue
        tried = await trial.tried(snapshot, message, StepResources({}))
        real = await handed_on(snapshot, message)
        assert tried.messages == real or tried.error == real[0].extra[DEAD_ERROR]


@pytest.mark.parametrize(
    ("content_type", "body"),
    [("application/json", b'{"n":\n1.10}'), ("application/json", b'{"n":1.10}'), ("text/csv", b"a,b\r\n1,2\r\n")],
)
@pytest.mark.parametrize("options", [{}, {"body": {"n": "{{n}}"}}, {"batch_lines": "envelope"}])
@pytest.mark.parametrize("batch", [None, {"messages": 10}])
async def test_what_an_http_output_is_said_to_send_is_what_arrives(
    content_type: str, body: bytes, options: dict[str, Any], batch: dict[str, Any] | None
) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response()

    message = trial.sample(snapshot_of(), body, content_type)
    async with receiver(answer) as running:
        connector = RuntimeConnector(type="http", connection={"url": running.url})
        config = OutputConfig.model_validate({**OUTPUT, "options": options, "batch": batch})
        capability: Any = config.bind(connector)
        said: bytes | DeliveryError
        try:
            said = capability.sent(message).body
        except DeliveryError as error:
            said = error
        outcome: Any
        await capability.open()
        try:
            outcome = (await capability.deliver([message]))[0] if batch else await capability.deliver(message)
        except DeliveryError as error:
            outcome = error
        await capability.close()
        if isinstance(said, DeliveryError):
            assert str(outcome) == str(said)
            assert running.bodies == []
        else:
            assert [one.removesuffix(b"\n").removesuffix(b"\r") for one in running.bodies] == [said.rstrip(b"\r\n")]


def test_a_replay_enters_as_the_message_did() -> None:
    snapshot = snapshot_of(index=INDEXED)
    received = replace(
        trial.sample(snapshot, b'{"country": "BR"}', "application/json"),
        received_at="2024-01-02T03:04:05.678Z",
        extra={"source": "orders", INDEX: "{}"},
    )
    again = trial.replayed(snapshot, received)
    assert again == replace(received, extra={"source": "orders", INDEX: '{"country":"BR"}'})
    filtered = snapshot_of(input={"type": "filter", "condition": {"type": "equals", "field": "country", "value": "BR"}})
    taken = trial.replayed(filtered, received)
    assert (taken.id, taken.body, taken.received_at) == (received.id, received.body, received.received_at)


def test_a_replay_tells_what_was_added_changed_and_lost() -> None:
    delivered = [b'{"id": 1, "old": null, "n": 9007199254740993}', b"gone", b"1"]
    results = [b'{"id": "1", "new": null, "n": 9007199254740993.0}', b"text"]
    assert trial.compared(delivered, results) == [
        trial.Difference(1, "id", "changed", "1", '"1"'),
        trial.Difference(1, "old", "lost", "null", ""),
        trial.Difference(1, "new", "added", "", "null"),
        trial.Difference(2, "", "changed", '"gone"', '"text"'),
        trial.Difference(3, "", "lost", "1", ""),
    ]
