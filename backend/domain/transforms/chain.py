"""A pipeline's list of transforms as one function over message bodies."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from backend.domain import json
from backend.domain.transforms.base import Encoded, Step, Transform, TransformError
from backend.domain.transforms.decode import Decode
from backend.domain.transforms.encode import Encode

_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Result:
    """A message body that goes on, and the document it was written from: none when it is not JSON."""

    body: bytes
    content_type: str
    document: Any = None


@dataclass(frozen=True)
class StepTrace:
    """The documents before and after one step, as indented JSON, or as text where they are none."""

    name: str
    before: list[str]
    after: list[str]


@dataclass
class Trace:
    """What each step made of a message, up to the first that refused it: ``error`` is its sentence."""

    steps: list[StepTrace] = field(default_factory=list)
    error: str = ""
    results: list[Result] = field(default_factory=list)


Chain = Callable[[bytes], list[Result]]


def check_order(transforms: Sequence[Transform]) -> None:
    """Raises ValueError when a step stands where it cannot work."""
    for index, transform in enumerate(transforms):
        if isinstance(transform, Decode) and index > 0:
            raise ValueError(f"Step {index + 1} (decode) must be the first: after it messages are documents.")
        if isinstance(transform, Encode) and index < len(transforms) - 1:
            raise ValueError(f"Step {index + 1} (encode) must be the last: it ends the documents.")


def compile_chain(transforms: Sequence[Transform]) -> Chain:
    """Compiles the steps once. The function takes a body, JSON unless the first step decodes it, and gives
    what goes on.

    It raises TransformError, naming the step (counted from 1), for a body that cannot be read or
    that a step refuses; no other error can come from a message.
    """
    read, steps = _reader(transforms), _compiled(transforms)

    def run(body: bytes) -> list[Result]:
        documents = read(body)
        for name, step in steps:
            documents = _apply(name, step, documents)
        return _written(documents)

    return run


def trace_chain(transforms: Sequence[Transform], body: bytes) -> Trace:
    """Runs the chain on one body and keeps what is between the steps."""
    trace = Trace()
    try:
        documents = _reader(transforms)(body)
        for name, step in _compiled(transforms):
            before = _shown(documents)
            trace.steps.append(StepTrace(name, before, []))
            documents = _apply(name, step, documents)
            trace.steps[-1] = StepTrace(name, before, _shown(documents))
        trace.results = _written(documents)
    except TransformError as error:
        trace.error = str(error)
    return trace


def _compiled(transforms: Sequence[Transform]) -> list[tuple[str, Step]]:
    return [(f"Step {n} ({transform.type})", transform.compile()) for n, transform in enumerate(transforms, 1)]  # type: ignore[attr-defined]


def _reader(transforms: Sequence[Transform]) -> Callable[[bytes], list[Any]]:
    if transforms and isinstance(transforms[0], Decode):
        return lambda body: [body]

    def read(body: bytes) -> list[Any]:
        try:
            return [json.loads(body)]
        except json.InvalidJsonError as error:
            raise TransformError(f"The body is not JSON: {error}") from None

    return read


def _written(documents: list[Any]) -> list[Result]:
    try:
        return [
            Result(document.body, document.content_type)
            if isinstance(document, Encoded)
            else Result(json.dumps(document), _JSON, document)
            for document in documents
        ]
    except (RecursionError, ValueError):
        raise TransformError("The result is nested too deeply to be written.") from None


def _shown(documents: list[Any]) -> list[str]:
    return [_text(document) for document in documents]


def _text(document: Any) -> str:
    if isinstance(document, Encoded | bytes):
        body = document.body if isinstance(document, Encoded) else document
        return body.decode(errors="replace")
    return json.indented(json.dumps(document))


def _apply(name: str, step: Step, documents: list[Any]) -> list[Any]:
    try:
        return [result for document in documents for result in step(document)]
    except ValueError as error:
        raise TransformError(f"{name}: {error}") from None
    except RecursionError:
        raise TransformError(f"{name}: The message is nested too deeply.") from None
