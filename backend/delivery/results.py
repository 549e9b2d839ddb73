"""Records that a stage produces for a message; they are committed together with its offset."""

from dataclasses import dataclass, replace

from backend.domain import message as names
from backend.domain import routing
from backend.domain.message import KafkaHeaders, Message


@dataclass(frozen=True, slots=True)
class Record:
    """A Kafka record to be produced."""

    topic: str
    key: bytes | None
    value: bytes
    headers: list[tuple[str, bytes]]

    @classmethod
    def of(cls, topic: str, message: Message) -> "Record":
        return cls(topic, message.key, message.body, message.headers())


def dead_letter(
    message: Message, *, stage: str, reason: str, error: str, output: str = "", attempts: int = 0
) -> Record:
    """The message with its cause, for the dead-letter topic."""
    cause = {
        names.DEAD_STAGE: stage,
        names.DEAD_REASON: reason,
        names.DEAD_ERROR: error,
        names.DEAD_OUTPUT: output,
        names.DEAD_ATTEMPTS: str(attempts),
    }
    return Record.of(routing.DEAD_LETTER, replace(message, extra=message.extra | cause))


def malformed_dead_letter(
    *, key: bytes | None, value: bytes | None, headers: KafkaHeaders, stage: str, error: str
) -> Record:
    """A record that is no message, kept as it came."""
    kept = [(name, raw or b"") for name, raw in headers]
    cause = [
        (names.DEAD_STAGE, stage.encode()),
        (names.DEAD_REASON, b"malformed"),
        (names.DEAD_ERROR, error.encode()),
    ]
    return Record(routing.DEAD_LETTER, key, value or b"", kept + cause)
