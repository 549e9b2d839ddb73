"""Examples that a pipeline's transforms must reproduce: the pipeline's tests."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field, JsonValue

from backend.domain import json, paths
from backend.domain.diff import differences
from backend.domain.message import Message
from backend.domain.model import StrictModel
from backend.domain.transforms.base import CallFailedError, Calls, Memory, StepResources, Transform
from backend.domain.transforms.call import Call
from backend.domain.transforms.chain import Chain

_SHOWN = 3
_ID = "00000000-0000-7000-8000-000000000000"
_RECEIVED_AT = "2000-01-01T00:00:00.000Z"
"""The same each time, so that examples can have what steps make of them."""


class Example(StrictModel):
    """A message and the result that the transforms must produce."""

    name: str = Field(
        min_length=1, max_length=100, description="What the example shows.", examples=["An order from Brazil"]
    )
    input: str = Field(
        max_length=100_000,
        description="Body of the message. It was received on 2000-01-01 at 00:00 with the ID "
        "00000000-0000-7000-8000-000000000000, and without headers.",
    )
    answers: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="Responses of external APIs, by the names of the steps that call them. A step without a response "
        "fails.",
    )
    outputs: list[str] = Field(
        default_factory=list,
        max_length=1000,
        description="Bodies of the resulting messages, in order; empty if the message is dropped.",
    )
    error: str = Field(
        "", description="Beginning of the error with which the message is rejected; empty if it is accepted."
    )
    ignored: list[paths.FieldPath] = Field(
        default_factory=list,
        description="Fields of the results to ignore because they differ each time, such as new ids.",
    )


@dataclass(frozen=True)
class RecordedAnswers(Calls):
    """The answers that an example gives in place of external systems."""

    answers: Mapping[str, Any]

    async def call(self, step: Call, document: Any) -> Any:
        if step.name not in self.answers:
            raise CallFailedError("no_answer", f"The example has no response for {step.name}. Add one under answers.")
        return json.loads(json.dumps(self.answers[step.name]))  # a copy, since documents are changed in place


class EverythingIsNew(Memory):
    """Remembers nothing: every message is the first of its kind."""

    async def first_seen(self, key: str, seconds: int) -> bool:
        return True


def check_examples(transforms: Sequence[Transform], examples: Sequence[Example]) -> list[str]:
    """For each example, a sentence on how the transforms' result differs from it; empty if it does not."""
    chain = Chain(transforms)
    return [asyncio.run(_check(chain, example)) for example in examples]


async def _check(chain: Chain, example: Example) -> str:
    resources = StepResources({Calls: RecordedAnswers(example.answers), Memory: EverythingIsNew()})
    body = example.input.encode()
    message = Message(_ID, _ID, 1, _ID.encode(), body, "application/json", _RECEIVED_AT, ())
    trace = await chain.trace(body, resources, message)
    if trace.error or example.error:
        if trace.error.startswith(example.error) and example.error:
            return ""
        return f"It is rejected: {trace.error}" if trace.error else "It is no longer rejected."
    if len(trace.results) != len(example.outputs):
        return f"It results in {len(trace.results)} messages instead of {len(example.outputs)}."
    ignored = [paths.parse_path(path) for path in example.ignored]
    for number, (result, expected) in enumerate(zip(trace.results, example.outputs, strict=True), 1):
        texts = [
            f"{path or 'the whole message'} is {_short(after)} instead of {_short(before)}"
            for path, before, after in differences(
                _comparable(expected.encode(), ignored), _comparable(result.body, ignored)
            )
        ]
        if texts:
            more = f" (and {len(texts) - _SHOWN} more)" if len(texts) > _SHOWN else ""
            return f"Message {number}: {'; '.join(texts[:_SHOWN])}{more}."
    return ""


def _comparable(body: bytes, ignored: list[tuple[str, ...]]) -> Any:
    """The document without the ignored fields, or the text of a body that is not JSON."""
    try:
        document = json.loads(body)
    except json.InvalidJsonError:
        return body.decode(errors="replace")
    for steps in ignored:
        paths.remove(document, steps)
    return document


def _short(value: Any) -> str:
    text = "missing" if value is paths.MISSING else json.dumps(value).decode()
    return text if len(text) <= 60 else f"{text[:57]}…"
