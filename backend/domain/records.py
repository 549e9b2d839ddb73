"""Records that a stage produces for a message; they are committed together with its offset."""

from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from backend.domain import json, routing
from backend.domain import message as names
from backend.domain.message import KafkaHeaders, Message, utc_now
from backend.domain.reasons import Reason

RESOLVED = "dead-letter-resolved"
"""Header of the record on the dead-letter topic which marks a redelivered dead letter as resolved."""


class Record(msgspec.Struct, frozen=True):
    """A Kafka record to be produced."""

    topic: str
    key: bytes | None
    value: bytes
    headers: list[tuple[str, bytes]]

    @classmethod
    def of(cls, topic: str, message: Message) -> "Record":
        return cls(topic, message.key, message.body, message.headers())


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a delivery. ``at`` is ISO 8601 in UTC; ``error`` and ``reason`` are empty after a success."""

    at: str
    number: int
    milliseconds: float
    status: str
    reason: str = ""
    error: str = ""
    response: str = ""


def dead_letter(
    message: Message,
    *,
    stage: str,
    reason: str,
    error: str,
    output: str = "",
    attempts: int = 0,
    due: float | None = None,
    retryable: bool = False,
) -> Record:
    """The message with its cause, for the dead-letter topic.

    ``due`` is the Unix time from which it may be redelivered automatically, if the cause tells;
    ``retryable`` marks a cause that may be temporary although nobody knows until when.
    """
    cause = {
        names.DEAD_STAGE: stage,
        names.DEAD_REASON: reason,
        names.DEAD_ERROR: error,
        names.DEAD_OUTPUT: output,
        names.DEAD_ATTEMPTS: str(attempts),
    }
    if due is not None:
        cause[names.DEAD_DUE] = f"{due:.3f}"
    if retryable:
        cause[names.DEAD_RETRYABLE] = "yes"
    return Record.of(routing.DEAD_LETTER, replace(message, extra=message.extra | cause))


def malformed_dead_letter(
    *, key: bytes | None, value: bytes | None, headers: KafkaHeaders, stage: str, error: str
) -> Record:
    """A record that is not a message, kept unchanged."""
    kept = [(name, raw or b"") for name, raw in headers]
    cause = [
        (names.DEAD_STAGE, stage.encode()),
        (names.DEAD_REASON, Reason.MALFORMED.encode()),
        (names.DEAD_ERROR, error.encode()),
    ]
    return Record(routing.DEAD_LETTER, key, value or b"", kept + cause)


def resolved(message: Message, dead_letter_id: str) -> Record:
    """Marks a redelivered dead letter as resolved. It follows the dead letter, having the same topic and key."""
    return Record(routing.DEAD_LETTER, message.key, b"", [(RESOLVED, dead_letter_id.encode())])


def billing_event(message: Message, *, workspace_id: str, output: str) -> Record:
    """One delivered (message, output)."""
    event = {
        "message_id": message.id,
        "workspace_id": workspace_id,
        "pipeline_id": message.pipeline_id,
        "output": output,
        "version": message.version,
        "bytes": len(message.body),
        "at": utc_now(),
    }
    return Record(routing.BILLING, message.key, json.dumps(event), [])


def attempt_record(message: Message, attempt: Attempt, *, workspace_id: str, output: str) -> Record:
    """One attempt, for the attempts log."""
    entry = {
        "message_id": message.id,
        "workspace_id": workspace_id,
        "pipeline_id": message.pipeline_id,
        "output": output,
        "version": message.version,
        "at": attempt.at,
        "number": attempt.number,
        "milliseconds": attempt.milliseconds,
        "status": attempt.status,
        "reason": attempt.reason,
        "error": attempt.error,
        "response": attempt.response,
    }
    return Record(routing.ATTEMPTS, message.key, json.dumps(entry), [])
