"""What a connector is: one file in ``backend/connectors`` that declares a system once.

The connection (address and credentials) is saved once by a team; each pipeline that uses it
adds only the options of its own delivery.
"""

import builtins
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from backend.domain.masking import redacted, secret_values
from backend.domain.message import Message
from backend.domain.model import StrictModel
from backend.domain.registry import Registry


class Connection(StrictModel):
    """Base of a connector type's address and credentials. Secrets are ``SecretStr`` fields."""

    def hosts(self) -> dict[str, list[str]]:
        """The hosts that will be connected to, by the field that names them."""
        return {}


class DestinationOptions(StrictModel):
    """Base of what a pipeline sets for one output: a path, a topic, a method."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the receiver answered to a delivery, for the attempt log."""

    status: str
    body: str = ""


class DeliveryError(Exception):
    """A delivery that failed.

    ``reason`` is a stable word for counting, the message says what happened and what to do.
    ``retryable`` tells a passing fault from a final answer; ``retry_after`` is the receiver's
    own wish in seconds. ``status`` and ``response`` are the receiver's answer, for the attempts log.
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
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.retryable = retryable
        self.retry_after = retry_after
        self.status = status
        self.response = response

    def without(self, secrets: Sequence[str]) -> "DeliveryError":
        """The same with a mask in place of secrets: a receiver may send back what it was sent."""
        return DeliveryError(
            self.reason,
            redacted(str(self), secrets),
            retryable=self.retryable,
            retry_after=self.retry_after,
            status=self.status,
            response=redacted(self.response, secrets),
        )


class CheckFailedError(Exception):
    """A connection test that failed; the message says what, in the user's terms.

    ``field`` is the connection's field that is to blame, when one is.
    """

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


ConnectionT = TypeVar("ConnectionT", bound=Connection)
OptionsT = TypeVar("OptionsT", bound=DestinationOptions)


class Destination(ABC, Generic[ConnectionT, OptionsT]):
    """Writes messages to one output. Made, used and closed on one event loop."""

    options_model: ClassVar[type[DestinationOptions]]

    def __init__(self, connection: ConnectionT, options: OptionsT) -> None:
        self.connection = connection
        self.options = options

    async def open(self) -> None:
        """Called once before the first delivery. Raises DeliveryError."""

    def secrets(self) -> list[str]:
        """What must not be shown of answers, in each form in which it is sent."""
        return list(secret_values(self.connection))

    @abstractmethod
    def target(self) -> str:
        """Where messages go, for people: no secrets. May be asked without ``open``."""

    @abstractmethod
    async def deliver(self, message: Message) -> Receipt:
        """Delivers one message; returns once the receiver has it. Raises DeliveryError."""

    async def close(self) -> None:
        """Gives back connections. Called once, also after a failed open."""


class VerificationError(Exception):
    """A request that does not prove where it comes from; the message says what is missing or wrong."""


class Verifier(ABC, Generic[ConnectionT]):
    """Checks requests that come in from a system."""

    def __init__(self, connection: ConnectionT) -> None:
        self.connection = connection

    @abstractmethod
    def verify(self, headers: dict[str, str], body: bytes) -> None:
        """``headers`` by their lower-case names. Raises VerificationError."""


class Connector(ABC):
    """A type of system. The docstring's first line is the description shown to users."""

    type: ClassVar[str]
    title: ClassVar[str]
    connection_model: ClassVar[builtins.type[Connection]]
    destination: ClassVar[builtins.type[Destination[Any, Any]] | None] = None
    """How it delivers, when it can."""
    verifier: ClassVar[builtins.type[Verifier[Any]] | None] = None
    """How it checks what comes in, when it can."""
    example: ClassVar[dict[str, Any]]
    """A valid connection, shown in the documentation."""

    @staticmethod
    @abstractmethod
    async def check(connection: Any) -> str:
        """Really connects; returns a sentence on what was reached. Raises CheckFailedError."""

    @classmethod
    def description(cls) -> str:
        return (cls.__doc__ or "").strip().split("\n", 1)[0]


connectors: Registry[Connector] = Registry("backend.connectors")
