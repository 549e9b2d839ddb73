"""Dead letters of what a lane cannot process or write: the record as it was read, with the cause."""

from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Message as KafkaRecord
from msgspec.structs import replace

from backend.domain import message as names
from backend.domain import routing
from backend.domain.reasons import Reason
from backend.domain.records import RESOLVED, Record, malformed_dead_letter

_IDENTITY = {names.PIPELINE, names.VERSION, names.MESSAGE_ID, names.DEAD_STAGE, names.DEAD_REASON, names.DEAD_ERROR}
"""Headers of a dead letter whose body Kafka refuses."""


def letter_of(record: KafkaRecord, *, stage: str, error: str, reason: str = Reason.MALFORMED) -> Record:
    """The dead letter of a record that was read."""
    key: Any = record.key()
    value: Any = record.value()
    headers: Any = record.headers() or []
    return malformed_dead_letter(key=key, value=value, headers=headers, stage=stage, error=error, reason=reason)


def without(
    refused: Record, records: list[Record], source: KafkaRecord, *, stage: str, error: KafkaError
) -> list[Record]:
    """What is written of a message when Kafka refuses one of its records for its own fault. What a stage made of it
    stays together, so a dead letter of ``source`` takes the place of all of it.

    Raises KafkaException when a dead letter without a body was refused.
    """
    if refused.topic in (routing.BILLING, routing.ATTEMPTS):
        return [record for record in records if record is not refused]
    if refused.topic == routing.DEAD_LETTER and not refused.value:
        raise KafkaException(error)
    reason = Reason.TOO_LARGE if error.code() == KafkaError.MSG_SIZE_TOO_LARGE else Reason.REFUSED_BY_KAFKA
    text = f"Kafka refuses what follows from the message: {error.str()}."
    letter = letter_of(source, stage=stage, error=text, reason=reason)
    if refused.topic == routing.DEAD_LETTER:  # the body cannot be kept
        headers = [(name, value) for name, value in letter.headers if name in _IDENTITY]
        letter = replace(letter, key=None, value=b"", headers=headers)
    return [*(record for record in records if _has_happened(record) and record is not refused), letter]


def _has_happened(record: Record) -> bool:
    """Whether the record tells what has happened to the message, in contrast to what is to happen."""
    if record.topic == routing.DEAD_LETTER:
        return not any(name == RESOLVED for name, _ in record.headers)
    return record.topic in (routing.BILLING, routing.ATTEMPTS)
