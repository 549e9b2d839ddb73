"""What may come of a message at an output."""

from dataclasses import dataclass, field

from backend.domain.records import Attempt


@dataclass(frozen=True, slots=True)
class Delivered:
    """The receiver has the message."""

    status: str
    attempts: list[Attempt] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Suppressed:
    """The receiver had the message before. ``same_read`` says that it was this very record, read again, or the
    one that became the dead letter which is redelivered: what was done of it then was not committed."""

    same_read: bool
    attempts: list[Attempt] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Undeliverable:
    """The message is to become a dead letter; ``due`` and ``retryable`` as for ``dead_letter``. ``rejected`` says that
    the receiver rejects this very message, and would reject it again."""

    reason: str
    error: str
    attempts: list[Attempt] = field(default_factory=list)
    due: float | None = None
    retryable: bool = False
    rejected: bool = False


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The message was not sent, since its record is read again."""


Outcome = Delivered | Suppressed | Undeliverable | Abandoned
