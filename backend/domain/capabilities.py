"""What a connector can do for a pipeline: each capability is a small protocol with options of its own.

A connector (``backend.domain.connector``) names the capabilities that it has; a pipeline asks for one where it uses
the connector (``backend.domain.uses``). An instance joins the connection with the options of one use; it is made,
opened, used and closed on one event loop.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import msgspec

from backend.domain.masking import redacted, secret_values
from backend.domain.message import Message, SourceHeader
from backend.domain.model import VersionedModel
from backend.domain.reasons import Reason
from backend.domain.retry import held_seconds


class ConnectorName(NamedTuple):
    """The type and the name of a connector in the same workspace."""

    type: str
    name: str


class Connection(VersionedModel):
    """Base of a connector type's address and credentials. Secrets are ``SecretStr`` fields."""

    def connectors(self) -> dict[str, ConnectorName]:
        """Other connectors that it needs, by the field that names them."""
        return {}

    def hosts(self) -> dict[str, list[str]]:
        """The hosts that will be connected to, by the field that names them."""
        return {}

    def far_hosts(self) -> dict[str, list[str]]:
        """The hosts that one of those will connect to in its own network, by the field that names them."""
        return {}


class Options(VersionedModel):
    """Base of what a pipeline sets for one use of a connector: a path, a topic, a table. Their version is stored beside
    each configuration of a pipeline (``backend.domain.uses.OptionVersions``).

    Where Headrace keeps how far an input was read, a changed option makes reading start anew, unless its field says by
    ``SAME_SOURCE`` that the same is read. What stands in a model within the options is judged field by field.
    """


ConnectionT = TypeVar("ConnectionT", bound=Connection)
OptionsT = TypeVar("OptionsT", bound=Options)


class Capability(ABC, Generic[ConnectionT, OptionsT]):
    """Base of all capabilities. ``name`` is how the API and the forms call it."""

    name: ClassVar[str]
    purpose: ClassVar[str]
    """Completes the sentence "this connector cannot …"."""
    options_model: ClassVar[type[Options]] = Options
    handed_over: ClassVar[bool] = False
    """Whether messages are handed over to a stage of its own, in the transaction that commits their outcome, instead of
    being delivered by the engine."""

    def __init__(self, connection: ConnectionT, options: OptionsT) -> None:
        self.connection = connection
        self.options = options
        self.registered: dict[str, Any] = {}
        """What the connector's ``Register`` made for this use; empty when it has none."""

    async def open(self) -> None:
        """Called once before the first use. Raises DeliveryError."""

    async def close(self) -> None:
        """Releases connections. Called once, also after a failed ``open``."""

    def secrets(self) -> list[str]:
        """Every secret, in each form in which it is sent: an answer may repeat what it was sent."""
        return list(secret_values(self.connection))


def _encodable(text: str) -> str:
    """Without surrogates, which a connector may have from bytes that are no text: nothing that is sent may have any."""
    return text.encode(errors="replace").decode()


class DeliveryError(Exception):
    """A call to an outside system that failed.

    ``reason`` is a stable word for counting; the message says what happened and what to do. ``retryable``
    distinguishes a transient fault from a final answer; ``retry_after`` is the number of seconds that the other side
    asked to be left alone: all messages of the output wait, but not for more than ``retry.LONGEST_HOLD_SECONDS``.
    ``status`` and ``response`` are its answer, for the attempts log. ``about_message`` marks the final refusal of this
    one message: the receiver works, so it neither counts for its circuit breaker nor holds the output. ``option`` is
    the field of the use's options that is to blame, when one is.
    """

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        retryable: bool,
        retry_after: float | None = None,
        status: str = "",
        response: str = "",
        about_message: bool = False,
        option: str = "",
    ) -> None:
        super().__init__(_encodable(message))
        self.reason = reason
        self.retryable = retryable
        self.retry_after = held_seconds(retry_after)
        self.status = status
        self.response = _encodable(response)
        self.about_message = about_message
        self.option = option

    def without(self, secrets: Sequence[str]) -> Self:
        """The same error with a mask in place of each secret."""
        return type(self)(
            self.reason,
            redacted(str(self), secrets),
            retryable=self.retryable,
            retry_after=self.retry_after,
            status=self.status,
            response=redacted(self.response, secrets),
            about_message=self.about_message,
            option=self.option,
        )


class BatchRefusedError(DeliveryError):
    """The receiver refused a batch, and took none of it, because of something in it.

    The engine sends each half of the batch by itself, so that only the message at fault fails.
    """


def internal_error(error: Exception) -> DeliveryError:
    """What an exception that a connector should not have raised becomes: retried, and without its text, which may
    hold a secret."""
    return DeliveryError(
        Reason.INTERNAL,
        f"The connector failed unexpectedly ({type(error).__name__}); the server's log has the details.",
        retryable=True,
    )


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the receiver answered to a delivery, for the attempts log."""

    status: str
    body: str = ""


@dataclass(frozen=True, slots=True)
class Sent:
    """What a receiver gets of a message, for people. ``place`` is where within the output's target, without secrets,
    when that depends on the message: a topic and a key, an id. ``deletes`` says that it removes what is there, which
    the body may tell."""

    body: bytes
    place: str = ""
    deletes: bool = False


class _Delivering(Capability[ConnectionT, OptionsT]):
    timeout_seconds = 10.0
    """The time limit of a delivery, after which it is cancelled. The use sets its own before ``open``: whoever waits
    for something itself gives up earlier, so that its error says what it waited for."""

    @abstractmethod
    def target(self) -> str:
        """Where messages go, for people: without secrets. May be called without ``open``."""

    def sent(self, message: Message) -> Sent:
        """What the receiver gets of the message, in a batch too. May be called without ``open``. Raises DeliveryError
        for a message that cannot be sent."""
        return Sent(message.body)


class Deliver(_Delivering[ConnectionT, OptionsT]):
    """Writes messages to one output, each by itself."""

    name = "deliver"
    purpose = "deliver messages"

    @abstractmethod
    async def deliver(self, message: Message) -> Receipt:
        """Delivers one message; returns once the receiver has it. Raises DeliveryError."""


class DeliverBatch(_Delivering[ConnectionT, OptionsT]):
    """Writes messages to one output, many at a time. The engine gathers them by the output's batch policy."""

    name = "deliver_batch"
    purpose = "deliver messages in batches"

    @property
    def atomic(self) -> bool:
        """Whether the receiver takes all of a batch or nothing, in order. Several messages with the same ordering
        key may share a batch only then."""
        return False

    @abstractmethod
    async def deliver(self, messages: Sequence[Message]) -> Sequence[Receipt | DeliveryError]:
        """Delivers a batch; one result for each message, in order.

        Raises DeliveryError when the whole batch failed for a cause of its own, such as a lost connection, and
        BatchRefusedError when it was refused for what is in it.
        """


class InputRecord(msgspec.Struct, frozen=True):
    """A record that an input read.

    ``identity`` names it within the pipeline, so that reading it again makes a message with the same id; without it
    each reading makes a new one. ``key`` is the record's own ordering key, which the pipeline's overrides. ``source``
    is the topic, table or file that it came from, and ``headers`` are what came with it: names, which may be repeated,
    and values, if they have any. A record with a ``fault``, a sentence, becomes a dead letter that says it.
    """

    body: bytes
    content_type: str = "application/json"
    key: bytes | None = None
    identity: str = ""
    source: str = ""
    headers: Sequence[SourceHeader] = ()
    fault: str = ""


class Batch(msgspec.Struct, frozen=True):
    """Records, and where reading goes on after them: any JSON value."""

    records: Sequence[InputRecord]
    breakpoint: Any


class Reading(StrEnum):
    """How the data plane reads an input that sends nothing by itself."""

    BATCHING = "batching"
    """To its end, then again from there."""
    STREAMING = "streaming"
    """For as long as the pipeline is published and not paused."""


class Part(NamedTuple):
    """A part of what a batch reads: the breakpoint at which it begins, and where it ends, any JSON value but null."""

    begins_at: Any
    ends_at: Any


class ReadBatch(Capability[ConnectionT, OptionsT]):
    """Reads an input to its end, again and again. One reader at a time, by a lease (``apps/manager/leases.py``), or one
    for each part (``plan``)."""

    name = "read_batch"
    purpose = "be read in batches"
    reading: ClassVar[Reading] = Reading.BATCHING
    ends_at: Any = None
    """Where the part ends that is read, as ``plan`` said, or None for the whole. Set before ``open``."""

    @abstractmethod
    def read(self, breakpoint: Any) -> AsyncIterator[Batch]:
        """What follows the breakpoint, which is None at the first time. Raises DeliveryError.

        A batch's breakpoint is kept within seconds after Kafka has acknowledged its records, also in the middle of a
        long reading: whoever begins there must miss nothing. A part is read to its end, however long that takes:
        whoever reads it limits the time. Its last breakpoint is where the next batch of the whole begins, once all
        other parts are read, too."""

    async def plan(self, breakpoint: Any) -> Sequence[Part]:
        """Parts of what follows the breakpoint, for readers of their own: in order, each from where the one before it
        ends, together the whole. Empty for reading it in one piece. Records have the same identities in both ways.
        Called before ``read``, so it has to be cheap and to limit its own time. Raises DeliveryError."""
        return ()

    async def estimate(self, breakpoint: Any) -> int | None:
        """About how many records follow the breakpoint, for people, or None when that is not known. Called before
        ``read``, so it has to be cheap and to limit its own time. Raises DeliveryError."""
        return None


class ReadStream(Capability[ConnectionT, OptionsT]):
    """Reads an input without end. One reader at a time, by a lease."""

    name = "read_stream"
    purpose = "be read as a stream"
    reading: ClassVar[Reading] = Reading.STREAMING
    keeps_position: ClassVar[bool] = False
    """Whether the source does not keep every position, so that Headrace does, with the lease."""

    def __init__(self, connection: ConnectionT, options: OptionsT) -> None:
        super().__init__(connection, options)
        self.position: Any = None
        """With ``keeps_position``: the breakpoint of a batch that Kafka has acknowledged, set before ``open``; it may
        be some seconds old, and is None at the first time."""

    @classmethod
    def goes_on_from(cls, breakpoint: Any) -> bool:
        """With ``keeps_position``: whether reading needs that breakpoint to go on. If not, the source itself keeps the
        position, and nothing starts anew without the breakpoint."""
        return True

    @abstractmethod
    def stream(self) -> AsyncIterator[Batch]:
        """Records as they come, after what was acknowledged. Raises DeliveryError."""

    @abstractmethod
    async def acknowledge(self, position: Any) -> None:
        """Kafka has everything up to that batch's breakpoint. Called after each batch, before ``stream`` is asked for
        the next. Raises DeliveryError."""

    async def lag(self) -> int | None:
        """About how many records wait to be read, for people, or None when that is not known. Called now and then
        beside ``stream``, within a time limit. Raises DeliveryError."""
        return None


class VerificationError(Exception):
    """A request that does not prove where it comes from; the message says what is missing or wrong."""


class Verify(Capability[ConnectionT, OptionsT]):
    """Verifies requests that a system sends to a pipeline. Needs neither ``open`` nor ``close``."""

    name = "verify"
    purpose = "verify requests"
    computes_only: ClassVar[bool] = False
    """Whether ``verify`` waits for nothing and takes less than a millisecond or so. It is called on the event loop of
    all requests then, otherwise in a thread, and given up after some seconds."""

    @abstractmethod
    def verify(self, headers: Mapping[str, Sequence[str]], body: bytes) -> None:
        """``headers`` by their lower-case names: of each its values in the order in which they came, an octet for each
        character. Raises VerificationError."""


class Call(Capability[ConnectionT, OptionsT]):
    """Asked by a step of a pipeline for something that its messages lack."""

    name = "call"
    purpose = "be called by a step"

    @abstractmethod
    def request(self) -> Callable[[Any, Any], Hashable]:
        """The request as a function of a document and of what is known of its message
        (``message_templates.Metadata``). Equal requests have equal answers, so it is what the cache goes by. The
        function raises ValueError, whose text is for people, on a document that does not fit."""

    @abstractmethod
    async def call(self, request: Any) -> bytes:
        """The answer as JSON, empty for none. Raises DeliveryError."""

    @abstractmethod
    def shown(self, request: Any) -> str:
        """The request for people, without address and credentials."""


class Export(Capability[ConnectionT, OptionsT]):
    """Writes a staged data set as files. A partial file is never visible: ``commit`` publishes it, ``abort`` leaves
    nothing behind."""

    name = "export"
    handed_over = True
    purpose = "store files"
    part_bytes: ClassVar[int] = 8 * 1024 * 1024
    """Size of each part but the last, which may be smaller: object stores refuse smaller ones, and other stores find
    the place of a part by its number."""

    @abstractmethod
    async def begin(self, path: str) -> Any:
        """Begins a file; what it returns, any JSON value, is passed to the calls below, which another process may
        make. Raises DeliveryError, as they do."""

    @abstractmethod
    async def write(self, upload: Any, number: int, part: bytes) -> None:
        """Writes part ``number``, counted from 1. The same part may be written again."""

    @abstractmethod
    async def commit(self, upload: Any) -> None:
        """Makes the file visible, as a whole. May be repeated."""

    @abstractmethod
    async def abort(self, upload: Any) -> None:
        """Removes what was written. May be repeated."""

    async def unfinished(self, prefix: str, is_ours: Callable[[str], bool], seconds: float) -> AsyncIterator[Any]:
        """Uploads that were begun and neither committed nor aborted, and that nothing was written to for so long. Of
        each as much of what ``begin`` returned as identifies it, which is enough for ``abort``. Where nothing but a
        file's name tells an upload of ours from one of another program, only those of names with the prefix that
        ``is_ours`` says are. Raises DeliveryError."""
        return
        yield  # a store in which nothing can be left has none


class CollectedDocument(NamedTuple):
    """What a message is in a collection: its key, the partition to which it belongs of how many, and whether it says
    that what has its key is deleted."""

    key: bytes
    partition: int
    partitions: int
    deleted: bool


class Collect(_Delivering[ConnectionT, OptionsT]):
    """Keeps messages as documents of a collection. Needs neither ``open`` nor ``close``: the engine hands each message
    over in the transaction that commits its outcome, and calls nobody."""

    name = "collect"
    handed_over = True
    purpose = "keep messages in a collection"

    def sent(self, message: Message) -> Sent:
        document = self.document(message)
        key = document.key.decode()
        return Sent(message.body, f"key {key}, partition {document.partition}", document.deleted)

    @abstractmethod
    def document(self, message: Message) -> CollectedDocument:
        """What the message is there: the same on every repeat. Raises DeliveryError when it cannot be a document of the
        collection."""


@dataclass(frozen=True, slots=True)
class RegistrationState:
    """How that is which was made in another system."""

    warning: str = ""
    """What endangers it, or the other system because of it, in a sentence; empty when nothing does."""
    measures: dict[str, float] = field(default_factory=dict)
    """Numbers by their names, such as retained_bytes, for the metrics."""


class Register(Capability[ConnectionT, OptionsT]):
    """Makes what a use needs in the other system before its pipeline is published, and removes it again.

    It prepares the uses whose options are its own: those of a capability with the same ``options_model``. ``name``
    belongs to one use of one pipeline and stays the same for all its versions. ``made`` is what the last ``register``
    returned; it is empty at first, and when a call was cut off before its answer was stored. What was made reaches the
    use itself as ``registered``.
    """

    name = "register"
    purpose = "be prepared in the other system"

    @abstractmethod
    async def register(self, name: str, made: dict[str, Any]) -> dict[str, Any]:
        """Makes it, or adapts what was made to these options; JSON without secrets. May be repeated. Raises
        DeliveryError."""

    @abstractmethod
    async def unregister(self, name: str, made: dict[str, Any]) -> None:
        """Removes what was made, if it is there. May be repeated. Raises DeliveryError."""

    async def state(self, name: str, made: dict[str, Any]) -> RegistrationState:
        """How it is. Asked every minute, also while the pipeline is paused. Raises DeliveryError."""
        return RegistrationState()


CAPABILITIES: tuple[type[Capability[Any, Any]], ...] = (
    Deliver,
    DeliverBatch,
    ReadBatch,
    ReadStream,
    Verify,
    Call,
    Export,
    Collect,
    Register,
)
