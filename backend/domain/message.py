"""The message: a Kafka record's payload and the headers that travel with it."""

import time
import uuid
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache

import msgspec
import uuid_utils
from msgspec.structs import replace

from backend.domain import json, limits

PIPELINE = "pipeline"
VERSION = "version"
MESSAGE_ID = "message-id"
RECEIVED_AT = "received-at"
CONTENT_TYPE = "content-type"
TRACEPARENT = "traceparent"
ROUTING_SLIP = "routing-slip"
INDEX = "firehose_index"
"""The fields that filters may test, a JSON object."""
FILTERED = "filtered"
"""The pipelines whose filters have already matched a message, so that it enters none twice."""
SOURCE = "source"
"""The topic, table or file that a record came from which was read."""
SOURCE_HEADERS = "source-headers"
"""The headers of such a record, which ``source_fields`` writes."""
# Set on dead letters only.
DEAD_REASON = "dead-letter-reason"
DEAD_ERROR = "dead-letter-error"
DEAD_OUTPUT = "dead-letter-output"
DEAD_STAGE = "dead-letter-stage"
DEAD_ATTEMPTS = "dead-letter-attempts"
DEAD_DUE = "dead-letter-due"
"""Unix time from which the message may be redelivered automatically; without it only a person redelivers it."""
DEAD_RETRYABLE = "dead-letter-retryable"
"""Present when the cause may be temporary, but nobody knows until when."""
# Set on redelivered messages.
REDELIVERY = "redelivery"
"""The id of the dead letter that is redelivered."""
REDELIVERY_OUTPUT = "redelivery-output"
"""The one output it is for; empty for all."""

# Set on messages for outputs that store files.
EXPORT_OUTPUT = "export-output"
EXPORT_WORKSPACE = "export-workspace"

# Set on dead letters and redelivered messages.
READ_AT = "read-at"
"""Positions at which a message was read and became a dead letter before anybody looked whether it was delivered."""

_POSITIONS_KEPT = 20

KafkaHeaders = Iterable[tuple[str, bytes | None]]
SourceHeader = tuple[str, bytes | None]


class MalformedMessageError(ValueError):
    """A record whose headers do not make a Headrace message."""


class Redelivery(msgspec.Struct, frozen=True):
    """A redelivered dead letter, and the one output it is for; empty for all."""

    dead_letter: str
    output: str
    read_at: tuple[str, ...] = ()
    """Positions at which it was read before; what was done of it there was not committed."""


class Message(msgspec.Struct, frozen=True):
    """One message on its way through a pipeline.

    Messages with the same ``key`` stay in order, ``version`` is the pipeline version it was accepted
    under, ``received_at`` an ISO 8601 time in UTC, and ``slip`` the topics still ahead.
    ``extra`` holds any further headers, which travel unchanged.
    """

    id: str
    pipeline_id: str
    version: int
    key: bytes
    body: bytes
    content_type: str
    received_at: str
    slip: tuple[str, ...]
    extra: dict[str, str] = {}

    def headers(self) -> list[tuple[str, bytes]]:
        """The Kafka headers of this message."""
        return [
            (PIPELINE, self.pipeline_id.encode()),
            (VERSION, str(self.version).encode()),
            (MESSAGE_ID, self.id.encode()),
            (RECEIVED_AT, self.received_at.encode()),
            (CONTENT_TYPE, self.content_type.encode()),
            (ROUTING_SLIP, ",".join(self.slip).encode()),
            *[(name, value.encode()) for name, value in self.extra.items()],
        ]

    @classmethod
    def from_kafka(cls, *, key: bytes | None, value: bytes | None, headers: KafkaHeaders) -> "Message":
        """Reads a record. Raises MalformedMessageError when a required header is missing."""
        values = {name: (raw or b"").decode(errors="replace") for name, raw in headers}
        try:
            slip = values.pop(ROUTING_SLIP)
            return cls(
                id=values.pop(MESSAGE_ID),
                pipeline_id=values.pop(PIPELINE),
                version=int(values.pop(VERSION)),
                key=key or b"",
                body=value or b"",
                content_type=values.pop(CONTENT_TYPE),
                received_at=values.pop(RECEIVED_AT),
                slip=tuple(slip.split(",")) if slip else (),
                extra=values,
            )
        except KeyError as error:
            raise MalformedMessageError(f"The record has no header {error}.") from None
        except ValueError:
            raise MalformedMessageError("The record's version header is not a number.") from None

    def advanced(self) -> tuple[str, "Message"]:
        """The next topic and the message as it goes there. Raises MalformedMessageError at the end."""
        if not self.slip:
            raise MalformedMessageError("The routing slip is empty: there is no next stage.")
        return self.slip[0], replace(self, slip=self.slip[1:])

    @property
    def source(self) -> str:
        """Where the record came from that was read; empty for what was sent to Headrace."""
        return self.extra.get(SOURCE, "")

    def source_headers(self) -> list[SourceHeader]:
        """What came with the record that was read, in its order."""
        written = self.extra.get(SOURCE_HEADERS)
        headers = json.loads(written) if written else ()
        return [(name, None if value is None else b64decode(value)) for name, value in headers]

    def split_redelivery(self) -> "tuple[Message, Redelivery | None]":
        """The original message, and its redelivery if it is one."""
        if REDELIVERY not in self.extra:
            return self, None
        extra = dict(self.extra)
        read_at = tuple(extra.pop(READ_AT, "").split())
        redelivery = Redelivery(extra.pop(REDELIVERY), extra.pop(REDELIVERY_OUTPUT, ""), read_at)
        return replace(self, extra=extra), redelivery


def read_at(message: Message, positions: Iterable[str]) -> Message:
    """The message with the positions at which it was read, of which the last ones matter."""
    return replace(message, extra=message.extra | {READ_AT: " ".join(list(positions)[-_POSITIONS_KEPT:])})


def source_fields(source: str, headers: Sequence[SourceHeader]) -> dict[str, str]:
    """Further headers of a message that is made of a record from there, with these headers of its own. Raises
    TooLargeError."""
    fields = {SOURCE: source} if source else {}
    if headers:
        written = json.dumps([(name, None if value is None else b64encode(value).decode()) for name, value in headers])
        limits.check_source_headers(len(written))
        fields[SOURCE_HEADERS] = written.decode()
    return fields


def new_message_id() -> str:
    """A UUIDv7, so that ids sort by time."""
    return str(uuid_utils.uuid7())


def child_message_id(parent: str, index: int) -> str:
    """The id of the ``index``-th message made from ``parent``: the same on every repeat."""
    return str(uuid.uuid5(uuid.UUID(parent), str(index)))


def filtered_message_id(parent: str, pipeline_id: str) -> str:
    """The id under which another pipeline gets ``parent``: the same on every repeat."""
    return str(uuid.uuid5(uuid.UUID(parent), pipeline_id))


def utc_now() -> str:
    """The present as ISO 8601 with milliseconds."""
    second, milliseconds = divmod(time.time_ns() // 1_000_000, 1000)
    return f"{_iso_second(second)}.{milliseconds:03d}Z"


@lru_cache(maxsize=2)
def _iso_second(second: int) -> str:
    # Called several times for each message; only the first call in a second computes the date.
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
