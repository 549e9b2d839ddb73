"""A pipeline's list of transforms as one function over message bodies."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from backend.domain import json, limits
from backend.domain.reasons import Reason
from backend.domain.transforms.base import (
    CallFailedError,
    Encoded,
    NotProvidedError,
    Step,
    StepResources,
    Transform,
    TransformError,
    WaitingStep,
    WaitingTransform,
)
from backend.domain.transforms.decode import Decode
from backend.domain.transforms.encode import Encode

_JSON = "application/json"


class Result(msgspec.Struct, frozen=True):
    """A message body that goes on, and the document it was written from: none when it is not JSON."""

    body: bytes
    content_type: str
    document: Any = None


class Dropped(list[Result]):
    """No results: the step with this number, counted from 1, dropped the message."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step


@dataclass(frozen=True)
class StepTrace:
    """The documents before and after one step, as indented JSON, or as text where they are none.

    ``passed_over`` marks a step that waits and was not run.
    """

    name: str
    before: list[str]
    after: list[str]
    passed_over: bool = False


@dataclass
class Trace:
    """What each step made of a message, up to the first that refused it: ``error`` is its sentence."""

    steps: list[StepTrace] = field(default_factory=list)
    error: str = ""
    results: list[Result] = field(default_factory=list)


def check_order(transforms: Sequence[Transform]) -> None:
    """Raises ValueError when a step stands where it cannot work."""
    for index, transform in enumerate(transforms):
        if isinstance(transform, Decode) and index > 0:
            raise ValueError(f"Step {index + 1} (decode) must be the first: after it messages are documents.")
        if isinstance(transform, Encode) and index < len(transforms) - 1:
            raise ValueError(f"Step {index + 1} (encode) must be the last: it ends the documents.")


class Chain:
    """A list of steps, compiled once. Takes a body, JSON unless the first step decodes it, and gives what goes on.

    TransformError, which names the step (counted from 1), is raised for a body that cannot be read or that a step
    refuses; no other error can come from a message.
    """

    def __init__(self, transforms: Sequence[Transform]) -> None:
        self._read = _reader(transforms)
        self._steps = [_NamedStep.of(number, transform) for number, transform in enumerate(transforms, 1)]
        self.waits = any(step.waiting is not None for step in self._steps)
        """Whether a step waits for something: only ``run_waiting`` works then."""

    def run(self, body: bytes) -> list[Result]:
        documents = self._read(body)
        for step in self._steps:
            documents = step.apply(documents)
            if not documents:
                return Dropped(step.number)
        return _written(documents)

    async def run_waiting(self, body: bytes, resources: StepResources) -> list[Result]:
        documents = self._read(body)
        for step in self._steps:
            documents = await step.apply_waiting(documents, resources)
            if not documents:
                return Dropped(step.number)
        return _written(documents)

    async def trace(self, body: bytes, resources: StepResources) -> Trace:
        """What is between the steps. Those that need a resource which is not provided are passed over."""
        trace = Trace()
        try:
            documents = self._read(body)
            for step in self._steps:
                before = _shown(documents)
                passed_over = False
                trace.steps.append(StepTrace(step.name, before, []))
                try:
                    documents = await step.apply_waiting(documents, resources)
                except NotProvidedError:
                    passed_over = True
                trace.steps[-1] = StepTrace(step.name, before, _shown(documents), passed_over)
            trace.results = _written(documents)
        except TransformError as error:
            trace.error = str(error)
        return trace


@dataclass(frozen=True, slots=True)
class _NamedStep:
    """One of the two functions is set."""

    number: int
    name: str
    plain: Step | None
    waiting: WaitingStep | None

    @classmethod
    def of(cls, number: int, transform: Transform) -> "_NamedStep":
        name = f"Step {number} ({transform.type})"  # type: ignore[attr-defined]
        if isinstance(transform, WaitingTransform):
            return cls(number, name, None, transform.compile_waiting())
        return cls(number, name, transform.compile(), None)

    def apply(self, documents: Sequence[Any]) -> Sequence[Any]:
        assert self.plain is not None
        try:
            if len(documents) == 1:  # nearly always
                return self.plain(documents[0])
            made = limits.FanOut()
            return [result for document in documents for result in _counted(self.plain(document), made)]
        except (ValueError, RecursionError) as error:
            raise self._named(error) from None

    async def apply_waiting(self, documents: Sequence[Any], resources: StepResources) -> Sequence[Any]:
        if self.waiting is None:
            return self.apply(documents)
        try:
            if len(documents) == 1:
                return await self.waiting(documents[0], resources)
            made = limits.FanOut()
            parts = await asyncio.gather(*(self._wait(document, resources, made) for document in documents))
        except (ValueError, RecursionError) as error:
            raise self._named(error) from None
        return [result for results in parts for result in results]

    async def _wait(self, document: Any, resources: StepResources, made: limits.FanOut) -> Sequence[Any]:
        assert self.waiting is not None
        return _counted(await self.waiting(document, resources), made)

    def _named(self, error: Exception) -> TransformError:
        if isinstance(error, RecursionError):
            failure = TransformError(f"{self.name}: The message is nested too deeply.")
        elif isinstance(error, CallFailedError):
            failure = CallFailedError(error.reason, f"{self.name}: {error}", due=error.due, retryable=error.retryable)
        else:
            failure = _failure(error, f"{self.name}: {error}")
        failure.step = self.number
        return failure


def _failure(error: Exception, text: str) -> TransformError:
    failure = TransformError(text)
    if isinstance(error, limits.TooLargeError):
        failure.reason = Reason.TOO_LARGE
    return failure


def _reader(transforms: Sequence[Transform]) -> Callable[[bytes], Sequence[Any]]:
    if transforms and isinstance(transforms[0], Decode):
        return lambda body: [body]

    def read(body: bytes) -> list[Any]:
        try:
            return [json.loads(body)]
        except json.InvalidJsonError as error:
            raise TransformError(f"The body is not JSON: {error}") from None

    return read


def _counted(documents: Sequence[Any], made: limits.FanOut) -> Sequence[Any]:
    """The documents of one step. Only several are measured; one grows within the limits that steps keep."""
    for document in documents:
        made.add(len(document.body if isinstance(document, Encoded) else json.dumps(document)))
    return documents


def _written(documents: Sequence[Any]) -> list[Result]:
    try:
        results = [
            Result(document.body, document.content_type)
            if isinstance(document, Encoded)
            else Result(json.dumps(document), _JSON, document)
            for document in documents
        ]
        for result in results:
            limits.check_body(len(result.body))
        if len(results) > 1:
            limits.FanOut().add(sum(len(result.body) for result in results), len(results))
    except limits.TooLargeError as error:
        raise _failure(error, str(error)) from None
    except (RecursionError, ValueError):
        raise TransformError("The result is nested too deeply to be written.") from None
    return results


def _shown(documents: Sequence[Any]) -> list[str]:
    return [_text(document) for document in documents]


def _text(document: Any) -> str:
    if isinstance(document, Encoded | bytes):
        body = document.body if isinstance(document, Encoded) else document
        return body.decode(errors="replace")
    return json.indented(json.dumps(document))
