"""What a transform is, and how a list of them becomes one function."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import Field

from backend.domain import limits, paths
from backend.domain.message_templates import Metadata
from backend.domain.model import StrictModel
from backend.domain.reasons import Reason
from backend.domain.registry import Registry

Step = Callable[[Any], Sequence[Any]]
"""Takes a document it may change in place; gives the documents that go on."""

MetadataStep = Callable[[Any, Metadata], Sequence[Any]]
"""As a Step, of a document and what is known of the message that it is made of."""


class TransformError(ValueError):
    """A document that a transform cannot handle; the message says why, in the user's terms.

    ``reason`` is a stable word for counting. ``due`` is the Unix time from which it may be tried again by
    itself, where the cause tells; ``retryable`` marks a cause that may pass although nobody knows when. ``step`` is the
    number of the step in its pipeline, counted from 1, if it is one's.
    """

    reason: str = Reason.TRANSFORM_FAILED
    due: float | None = None
    retryable = False
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Encoded:
    """A document that was written in another format than JSON."""

    body: bytes
    content_type: str


class Transform(StrictModel, ABC):
    """One configured step. Subclasses add ``type: Literal[...]`` and their fields."""

    example: ClassVar[dict[str, Any]]

    @abstractmethod
    def compile(self) -> Step:
        """The step as a function. It raises TransformError or PathError on a document it refuses, TooLargeError
        instead of making it too large."""

    @property
    def uses_metadata(self) -> bool:
        """Whether the step asks for more than the document: ``compile_with_metadata`` is used then."""
        return False

    def compile_with_metadata(self) -> MetadataStep:
        """As ``compile``, of a step that uses metadata."""
        raise TypeError("This step uses the document alone: use compile().")


class CallFailedError(TransformError):
    """An external API gave no usable answer."""

    def __init__(self, reason: str, message: str, *, due: float | None = None, retryable: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.due = due
        self.retryable = retryable


class NotProvidedError(Exception):
    """A step needs a resource that its runner does not provide; a trace passes the step over."""


ResourceT = TypeVar("ResourceT")


class StepResources:
    """What steps that wait may use for one message, by its class; provided by whoever runs the chain."""

    def __init__(self, resources: Mapping[type, Any]) -> None:
        self._resources = resources

    def get(self, kind: type[ResourceT]) -> ResourceT:
        """Raises NotProvidedError."""
        try:
            return self._resources[kind]  # type: ignore[no-any-return]
        except KeyError:
            raise NotProvidedError(kind.__name__) from None


class Calls(ABC):
    """Calls of external systems through connectors."""

    @abstractmethod
    async def call(self, step: Any, document: Any) -> Any:
        """The answer's JSON for that ``call`` step. Raises CallFailedError, and TransformError when the document
        makes no request."""


class Memory(ABC):
    """What is remembered of earlier messages of the pipeline."""

    @abstractmethod
    async def first_seen(self, key: str, seconds: int) -> bool:
        """Whether this message is the first with the key within so many seconds; the same when the message is
        read again. Raises CallFailedError while that cannot be determined."""


WaitingStep = Callable[[Any, StepResources], Awaitable[Sequence[Any]]]
"""As a Step, of a document and the resources of its message."""


class WaitingTransform(Transform):
    """A step that waits for something outside: an API, or what is remembered of other messages."""

    def compile(self) -> Step:
        raise TypeError("This step waits: use compile_waiting().")

    @abstractmethod
    def compile_waiting(self) -> WaitingStep:
        """The step as a function. It raises TransformError or PathError on a document it refuses."""


OnMissing = Literal["skip", "drop", "dead_letter"]


class FieldTransform(Transform):
    """A step that makes one value of another: in its place, or in ``to``."""

    path: paths.FieldPath = Field(description="Field to take the value from.")
    to: paths.FieldPath | None = Field(
        None, description="Where the result goes, replacing what is there; in the field's own place without it."
    )
    on_missing: OnMissing = Field(
        "skip", description="A message without the field: continues unchanged, is dropped, or becomes a dead letter."
    )

    @abstractmethod
    def compile_value(self) -> Callable[[Any], Any]:
        """The value as a function of the field's. It raises TransformError on a value it refuses."""

    def compile(self) -> Step:
        source = paths.parse_path(self.path)
        target = paths.parse_path(self.to) if self.to else source
        change = self.compile_value()
        missing = on_missing(self.path, self.on_missing)

        def step(document: Any) -> Sequence[Any]:
            value = paths.get(document, source)
            if value is paths.MISSING:
                return missing(document)
            written = change(value)
            paths.put(document, target, written)
            limits.check_growth(document, written)
            return (document,)

        return step


def on_missing(path: str, behaviour: OnMissing) -> Step:
    """What becomes of a document without the field."""

    def refuse(_document: Any) -> Sequence[Any]:
        raise TransformError(f"The message has no field {path}.")

    return {"skip": lambda document: (document,), "drop": lambda _: (), "dead_letter": refuse}[behaviour]


transforms: Registry[Transform] = Registry("backend.domain.transforms")
