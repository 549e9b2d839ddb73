"""Records that a stage produces for a message; they are committed together with its offset."""

from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from backend.domain import json, limits, routing
from backend.domain import message as names
from backend.domain.message import KafkaHeaders, Message, utc_now
from backend.domain.reasons import Reason

RESOLVED = "dead-letter-resolved"
"""Header of the record on the dead-letter topic which marks a redelivered dead letter as resolved."""

_HEADER_OVERHEAD = 8
"""Bytes that Kafka adds to each header, at most."""


class Record(msgspec.Struct, frozen=True):
    """A Kafka record to be produced."""

    topic: str
    key: bytes | None
    value: bytes
    headers: list[tuple[str, bytes]]

    @classmethod
    def of(cls, topic: str, message: Message) -> "Record":
        return cls(topic, message.key, message.body, message.headers())

    @property
    def size(self) -> int:
        """What counts for ``limits.RECORD_BYTES`` and ``limits.TRANSACTION_BYTES``."""
        size = len(self.key or b"") + len(self.value)
        for name, value in self.headers:  # faster than a sum; every record of a lane is measured
            size += len(name) + len(value) + _HEADER_OVERHEAD
        return size


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
    """The message with its cause, for the dead-letter topic. Kafka takes it however large the message is.

    ``due`` is the Unix time from which it may be redelivered automatically, if the cause tells;
    ``retryable`` marks a cause that may be temporary although nobody knows until when.
    """
    cause = {
        names.DEAD_STAGE: stage,
        names.DEAD_REASON: reason,
        names.DEAD_ERROR: error[: limits.ERROR_CHARACTERS],
        names.DEAD_OUTPUT: output,
        names.DEAD_ATTEMPTS: str(attempts),
    }
    if due is not None:
        cause[names.DEAD_DUE] = f"{due:.3f}"
    if retryable:
        cause[names.DEAD_RETRYABLE] = "yes"
    return _cut(Record.of(routing.DEAD_LETTER, replace(message, extra=message.extra | cause)))


def malformed_dead_letter(
    *,
    key: bytes | None,
    value: bytes | None,
    headers: KafkaHeaders,
    stage: str,
    error: str,
    reason: str = Reason.MALFORMED,
) -> Record:
    """A record as it was read from Kafka: one that is not a message, or one that cannot be processed."""
    kept = [(name, raw or b"") for name, raw in headers]
    cause = [
        (names.DEAD_STAGE, stage.encode()),
        (names.DEAD_REASON, reason.encode()),
        (names.DEAD_ERROR, error[: limits.ERROR_CHARACTERS].encode()),
    ]
    return _cut(Record(routing.DEAD_LETTER, key, value or b"", kept + cause))


def _cut(record: Record) -> Record:
    """The dead letter as Kafka takes it. Headrace's messages leave room for their cause; of others the end of long
    headers is cut off, and then that of the body."""
    excess = record.size - limits.RECORD_BYTES
    if excess <= 0:
        return record
    headers = [(name, value[: limits.HEADER_BYTES]) for name, value in record.headers]
    excess = replace(record, headers=headers).size - limits.RECORD_BYTES
    return replace(record, headers=headers, value=record.value[: max(0, len(record.value) - max(0, excess))])


def resolved(message: Message, dead_letter_id: str) -> Record:
    """Marks a redelivered dead letter as resolved. It follows the dead letter, having the same topic and key."""
    return Record(routing.DEAD_LETTER, message.key, b"", [(RESOLVED, dead_letter_id.encode())])


def staged_record(message: Message, *, workspace_id: str, output: str) -> Record:
    """The message, handed over to an output that stores files."""
    extra = message.extra | {names.EXPORT_OUTPUT: output, names.EXPORT_WORKSPACE: workspace_id}
    return Record.of(routing.EXPORT, replace(message, extra=extra))


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
