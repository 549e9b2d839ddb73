"""A pipeline's list of transforms as one function over message bodies."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from backend.domain import json, limits
from backend.domain.message import Message
from backend.domain.message_templates import Metadata
from backend.domain.reasons import Reason
from backend.domain.transforms.base import (
    CallFailedError,
    Encoded,
    MetadataStep,
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


_UNKNOWN = Message("", "", 0, b"", b"", "", "", ())


class Chain:
    """A list of steps, compiled once. Takes a body, JSON unless the first step decodes it, and gives what goes on.
    The message is what the body was received as; without it, its metadata are empty.

    TransformError, which names the step (counted from 1), is raised for a body that cannot be read or that a step
    refuses; no other error can come from a message.
    """

    def __init__(self, transforms: Sequence[Transform]) -> None:
        self._read = _reader(transforms)
        self._steps = [_NamedStep.of(number, transform) for number, transform in enumerate(transforms, 1)]
        self.waits = any(step.waiting is not None for step in self._steps)
        """Whether a step waits for something: only ``run_waiting`` works then."""
        self._uses_metadata = any(step.with_metadata is not None for step in self._steps)

    def run(self, body: bytes, message: Message | None = None) -> list[Result]:
        documents, metadata = self._read(body), self._metadata(message)
        for step in self._steps:
            documents = step.apply(documents, metadata)
            if not documents:
                return Dropped(step.number)
        return _written(documents)

    async def run_waiting(self, body: bytes, resources: StepResources, message: Message | None = None) -> list[Result]:
        documents, metadata = self._read(body), self._metadata(message)
        for step in self._steps:
            documents = await step.apply_waiting(documents, resources, metadata)
            if not documents:
                return Dropped(step.number)
        return _written(documents)

    async def trace(self, body: bytes, resources: StepResources, message: Message | None = None) -> Trace:
        """What is between the steps. Those that need a resource which is not provided are passed over."""
        trace, metadata = Trace(), self._metadata(message)
        try:
            documents = self._read(body)
            for step in self._steps:
                before = _shown(documents)
                passed_over = False
                trace.steps.append(StepTrace(step.name, before, []))
                try:
                    documents = await step.apply_waiting(documents, resources, metadata)
                except NotProvidedError:
                    passed_over = True
                trace.steps[-1] = StepTrace(step.name, before, _shown(documents), passed_over)
            trace.results = _written(documents)
        except TransformError as error:
            trace.error = str(error)
        return trace

    def _metadata(self, message: Message | None) -> Metadata | None:
        if not self._uses_metadata:
            return None
        return Metadata(message or _UNKNOWN)


@dataclass(frozen=True, slots=True)
class _NamedStep:
    """One of the three functions is set."""

    number: int
    name: str
    plain: Step | None
    waiting: WaitingStep | None
    with_metadata: MetadataStep | None = None

    @classmethod
    def of(cls, number: int, transform: Transform) -> "_NamedStep":
        name = f"Step {number} ({transform.type})"  # type: ignore[attr-defined]
        if isinstance(transform, WaitingTransform):
            return cls(number, name, None, transform.compile_waiting())
        if transform.uses_metadata:
            return cls(number, name, None, None, transform.compile_with_metadata())
        return cls(number, name, transform.compile(), None)

    def apply(self, documents: Sequence[Any], metadata: Metadata | None) -> Sequence[Any]:
        try:
            if len(documents) == 1:  # nearly always
                return self._results(documents[0], metadata)
            made = limits.FanOut()
            return [result for one in documents for result in _counted(self._results(one, metadata), made)]
        except (ValueError, RecursionError) as error:
            raise self._named(error) from None

    def _results(self, document: Any, metadata: Metadata | None) -> Sequence[Any]:
        if self.plain is not None:
            return self.plain(document)
        assert self.with_metadata is not None
        assert metadata is not None
        return self.with_metadata(document, metadata)

    async def apply_waiting(
        self, documents: Sequence[Any], resources: StepResources, metadata: Metadata | None
    ) -> Sequence[Any]:
        if self.waiting is None:
            return self.apply(documents, metadata)
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
    try:
        return json.indented(json.dumps(document))
    except (RecursionError, ValueError):
        return "This is nested too deeply to be shown."
