"""What a message may become is bounded, and so is the memory that it takes on the way there."""

import tracemalloc
from typing import Any

import pytest
from pydantic import TypeAdapter

from backend.domain import json, limits, routing
from backend.domain import message as names
from backend.domain.filters.fields import IndexedField, index_of
from backend.domain.message import Message
from backend.domain.pipeline import AnyTransform
from backend.domain.reasons import Reason
from backend.domain.records import dead_letter, malformed_dead_letter
from backend.domain.transforms.base import Memory, StepResources, TransformError
from backend.domain.transforms.chain import Chain

transforms = TypeAdapter(list[AnyTransform])

LONG = "x" * 900_000
DOUBLED = {"type": "template", "path": "a", "template": "{{a}}{{a}}"}
MANY = {"type": "template", "path": "b", "template": "{{a}}" * 1600}
INTO_ITSELF = [{"type": "copy", "path": "a", "to": f"a.c{number}"} for number in range(30)]
SET_LARGE = {"type": "set", "path": "b", "value": "x" * 100_000}
COLUMNS = {"type": "encode", "format": "csv", "columns": ["a"] * 1000}

GROWING: dict[str, tuple[list[dict[str, Any]], Any]] = {
    "six steps that double it": ([DOUBLED] * 6, {"a": LONG}),
    "one step that repeats it": ([MANY], {"a": LONG}),
    "copies of a copy": (INTO_ITSELF, {"a": {"b": "x" * 1000}}),
    "text of a text": ([{"type": "cast", "path": "a", "into": "string"}, DOUBLED] * 30, {"a": ["x" * 1000]}),
    "a separator": ([{"type": "join", "path": "a", "separator": "-" * 100}], {"a": [1] * 400_000}),
    "names of nested objects": (
        [{"type": "flatten", "lists": True}],
        {"x" * 100_000: [{str(n): n for n in range(100_000)}]},
    ),
    "the rest of a list": ([{"type": "split", "path": "items"}], {"a": LONG, "items": [1] * 1000}),
    "lists in lists": (
        [{"type": "split", "path": "items"}, {"type": "split", "path": "more"}],
        {"items": [1] * 1000, "more": [1] * 1000},
    ),
    "a large value in each": ([{"type": "split", "path": "items"}, SET_LARGE], {"items": [1] * 1000}),
    "a value for each in a list": (
        [{"type": "expression", "expression": "message.items.map(x, message.a)", "to": "b"}],
        {"a": LONG, "items": [1] * 1000},
    ),
    "a sum": ([{"type": "expression", "expression": "+".join(["message.a"] * 190), "to": "b"}], {"a": LONG * 3}),
    "columns": ([COLUMNS], {"a": LONG}),
    "one step that writes too much": ([DOUBLED, DOUBLED], {"a": LONG}),
}


@pytest.mark.parametrize("name", GROWING)
def test_neighbours_2_a_message_that_grows_too_much_is_refused_in_bounded_memory(name: str) -> None:
    steps, document = GROWING[name]
    chain, body = Chain(transforms.validate_python(steps)), json.dumps(document)
    del document
    tracemalloc.start()
    try:
        with pytest.raises(TransformError, match=r"^(Step \d|The message)") as refused:
            chain.run(body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert refused.value.reason == Reason.TOO_LARGE
    assert peak < 128 * 1024 * 1024


def test_neighbours_2_rows_become_a_bounded_number_of_messages() -> None:
    chain = Chain(transforms.validate_python([{"type": "decode", "format": "csv", "columns": ["a"]}]))
    assert len(chain.run(b"1\n" * limits.FAN_OUT_MESSAGES)) == limits.FAN_OUT_MESSAGES
    with pytest.raises(TransformError, match="more than 10,000 messages") as refused:
        chain.run(b"1\n" * (limits.FAN_OUT_MESSAGES + 1))
    assert refused.value.reason == Reason.TOO_LARGE


async def test_neighbours_2_answers_of_several_calls_are_bounded_together() -> None:
    class Answers:
        async def first_seen(self, key: str, seconds: int) -> bool:
            return True

    steps = [{"type": "split", "path": "items"}, {"type": "deduplicate", "paths": ["items"]}]
    chain = Chain(transforms.validate_python(steps))
    resources = StepResources({Memory: Answers()})
    kept = await chain.run_waiting(json.dumps({"a": "x" * 1000, "items": list(range(1000))}), resources)
    assert len(kept) == 1000
    with pytest.raises(TransformError) as refused:
        await chain.run_waiting(json.dumps({"a": LONG, "items": list(range(1000))}), resources)
    assert refused.value.reason == Reason.TOO_LARGE


def test_what_stays_within_the_limits_goes_on() -> None:
    chain = Chain(transforms.validate_python([DOUBLED]))
    [result] = chain.run(json.dumps({"a": LONG}))
    assert len(result.body) > 2 * len(LONG)


def test_neighbours_2_an_index_is_bounded() -> None:
    field = IndexedField(name="a", path="a", type="string")
    assert len(index_of([field], {"a": "x" * 1000})) > 1000
    with pytest.raises(limits.TooLargeError, match="65,536 bytes"):
        index_of([field], {"a": LONG})


@pytest.mark.parametrize("body", [0, 1_000_000, limits.BODY_BYTES, limits.RECORD_BYTES, 10 * limits.RECORD_BYTES])
@pytest.mark.parametrize("header", [0, 100_000, limits.RECORD_BYTES])
def test_neighbours_2_a_dead_letter_always_fits(body: int, header: int) -> None:
    message = Message(
        id="m", pipeline_id="p", version=1, key=b"k", body=b"x" * body, content_type="text/plain",
        received_at="now", slip=("next",), extra={"other": "y" * header},
    )  # fmt: skip
    made = dead_letter(message, stage="s", reason="r", error="e" * 5_000_000)
    raw = malformed_dead_letter(
        key=b"k", value=message.body, headers=message.headers(), stage="s", error="e" * 5_000_000
    )
    for record in (made, raw):
        assert record.topic == routing.DEAD_LETTER
        assert record.size <= limits.RECORD_BYTES
        assert dict(record.headers)[names.DEAD_STAGE] == b"s"
        if body <= limits.BODY_BYTES:
            assert record.value == message.body
        else:
            assert message.body.startswith(record.value)
