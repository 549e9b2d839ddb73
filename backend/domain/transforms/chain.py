"""A pipeline's list of transforms as one function over message bodies."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from backend.domain import json
from backend.domain.transforms.base import Step, Transform, TransformError


@dataclass(frozen=True)
class StepTrace:
    """The documents before and after one step, as indented JSON."""

    name: str
    before: list[str]
    after: list[str]


@dataclass
class Trace:
    """What each step made of a message, up to the first that refused it: ``error`` is its sentence."""

    steps: list[StepTrace] = field(default_factory=list)
    error: str = ""
    results: list[bytes] = field(default_factory=list)


def compile_chain(transforms: Sequence[Transform]) -> Callable[[bytes], list[bytes]]:
    """Compiles the steps once. The function takes a JSON body and gives the bodies that go on.

    It raises TransformError, naming the step (counted from 1), for a body that is not JSON or
    that a step refuses; no other error can come from a message.
    """
    steps = _compiled(transforms)

    def run(body: bytes) -> list[bytes]:
        documents = _read(body)
        for name, step in steps:
            documents = _apply(name, step, documents)
        return [json.dumps(document) for document in documents]

    return run


def trace_chain(transforms: Sequence[Transform], body: bytes) -> Trace:
    """Runs the chain on one body and keeps what is between the steps."""
    trace = Trace()
    try:
        documents = _read(body)
        for name, step in _compiled(transforms):
            before = _shown(documents)
            trace.steps.append(StepTrace(name, before, []))
            documents = _apply(name, step, documents)
            trace.steps[-1] = StepTrace(name, before, _shown(documents))
    except TransformError as error:
        trace.error = str(error)
    else:
        trace.results = [json.dumps(document) for document in documents]
    return trace


def _compiled(transforms: Sequence[Transform]) -> list[tuple[str, Step]]:
    return [(f"Step {n} ({transform.type})", transform.compile()) for n, transform in enumerate(transforms, 1)]  # type: ignore[attr-defined]


def _read(body: bytes) -> list[Any]:
    try:
        return [json.loads(body)]
    except json.InvalidJsonError as error:
        raise TransformError(f"The body is not JSON: {error}") from None


def _shown(documents: list[Any]) -> list[str]:
    return [json.indented(json.dumps(document)) for document in documents]


def _apply(name: str, step: Step, documents: list[Any]) -> list[Any]:
    try:
        return [result for document in documents for result in step(document)]
    except ValueError as error:
        raise TransformError(f"{name}: {error}") from None
