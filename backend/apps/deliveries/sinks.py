"""Writes dead letters and attempts from Kafka into PostgreSQL."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import uuid_utils
from confluent_kafka import Message as KafkaRecord
from django.db import connection
from uuid_utils.compat import uuid7

from backend.apps.deliveries.models import Attempt, DeadLetter
from backend.apps.kafka_sink.faults import moment_of, storable
from backend.apps.kafka_sink.sink import Sink
from backend.apps.pipelines.models import Pipeline
from backend.domain import message as names
from backend.domain import routing, uuids
from backend.domain.reasons import Reason
from backend.domain.records import RESOLVED

_OWN_COLUMNS = {names.PIPELINE, names.VERSION, names.MESSAGE_ID, names.RECEIVED_AT, names.CONTENT_TYPE}
_CAUSE = {
    names.DEAD_STAGE,
    names.DEAD_REASON,
    names.DEAD_ERROR,
    names.DEAD_OUTPUT,
    names.DEAD_ATTEMPTS,
    names.DEAD_DUE,
    names.DEAD_RETRYABLE,
}

_FIRST_REDELIVERY = timedelta(minutes=1)
_LONGEST_WAIT = timedelta(hours=6)
_REDELIVERIES = 10
"""Retryable failures are redelivered automatically up to this many times, each after four times the delay."""


@dataclass(slots=True)
class _Row:
    """A dead letter as it comes from Kafka, in the order of the staging table's columns."""

    id: UUID
    workspace_id: UUID | None
    pipeline_id: UUID | None
    output: str
    stage: str
    message_id: str
    version: int
    reason: str
    error: str
    attempts: int
    due_at: datetime | None
    retryable: bool
    key: bytes
    body: bytes
    content_type: str
    received_at: str
    headers: str
    at: datetime

    @property
    def identity(self) -> tuple[UUID | None, str, str, str]:
        return self.pipeline_id, self.output, self.message_id or str(self.id), self.stage


_COLUMNS = ", ".join(_Row.__slots__)  # type: ignore[attr-defined]

_STAGE = """
CREATE TEMPORARY TABLE IF NOT EXISTS dead_letter_stage (
    id uuid, workspace_id uuid, pipeline_id uuid, output text, stage text, message_id text, version int, reason text,
    error text, attempts int, due_at timestamptz, retryable boolean, key bytea, body bytea, content_type text,
    received_at text, headers jsonb, at timestamptz
) ON COMMIT DELETE ROWS
"""

_LOCK = """
SELECT FROM deliveries_deadletter WHERE id IN (
    SELECT unnest(%(resolved)s::uuid[])
    UNION ALL
    SELECT d.id FROM dead_letter_stage JOIN deliveries_deadletter AS d USING (pipeline_id, output, message_id, stage)
    WHERE NOT d.message_id = ''
)
ORDER BY id FOR UPDATE
"""
"""Those that are about to be changed, in the order that locking.py names."""

_UPSERT = """
INSERT INTO deliveries_deadletter AS d (
    id, workspace_id, pipeline_id, output, stage, message_id, version, state, reason, error, attempts, redeliveries,
    due_at, use_current_version, key, body, body_bytes, content_type, received_at, headers, first_at, last_at,
    closed_by, closed_why
)
SELECT id, workspace_id, pipeline_id, output, stage, message_id, version, 'waiting', reason, error, attempts, 0,
    CASE WHEN due_at IS NULL AND retryable THEN at + %(first)s ELSE due_at END,
    false, key, body, length(body), content_type, received_at, headers, at, at, '', ''
FROM dead_letter_stage
ON CONFLICT (pipeline_id, output, message_id, stage) WHERE NOT message_id = '' DO UPDATE SET
    state = CASE WHEN d.state IN ('discarded', 'delivered') THEN d.state ELSE 'waiting' END,
    reason = excluded.reason, error = excluded.error, last_at = excluded.last_at,
    attempts = d.attempts + excluded.attempts, claimed_at = NULL, sent_at = NULL, version = excluded.version,
    redeliveries = d.redeliveries + (d.state = 'redelivering')::int,
    due_at = CASE
        WHEN excluded.due_at IS NULL OR excluded.due_at <> excluded.first_at + %(first)s THEN excluded.due_at
        WHEN d.redeliveries < %(most)s
            THEN excluded.first_at + least(%(first)s * power(4, d.redeliveries + 1), %(longest)s)
    END,
    -- What failed last is what is sent again: another version may have changed it, and an expired one has no body.
    key = excluded.key, body = excluded.body, body_bytes = excluded.body_bytes, headers = excluded.headers,
    content_type = excluded.content_type,
    first_at = CASE WHEN d.state = 'expired' THEN excluded.first_at ELSE d.first_at END,
    closed_at = CASE WHEN d.state = 'expired' THEN NULL ELSE d.closed_at END,
    closed_why = CASE WHEN d.state = 'expired' THEN '' ELSE d.closed_why END
"""


class DeadLetterSink(Sink):
    """``firehose_dead_letter``: one row for each (message, output, stage), however often it failed."""

    name = "dead-letters"
    topic = routing.DEAD_LETTER

    def write(self, records: Sequence[KafkaRecord]) -> None:
        rows: dict[Any, _Row] = {}
        resolved: list[UUID] = []
        for record in records:
            headers = {name: storable((raw or b"").decode(errors="replace")) for name, raw in _headers(record)}
            if RESOLVED in headers:
                resolved.append(UUID(headers[RESOLVED]))
                continue
            row = _row(record, headers)
            if before := rows.get(row.identity):
                row.attempts += before.attempts
            rows[row.identity] = row
        self._store(list(rows.values()), resolved)
        # A redelivered dead letter either failed again or is resolved, so the order of the two does not matter.
        letters = DeadLetter.objects.filter(id__in=resolved).exclude(state=DeadLetter.State.DISCARDED)
        # A message that only waited for its turn has not failed: there is nothing to keep.
        letters.filter(reason=Reason.RATE_LIMITED, attempts=0).delete()
        letters.update(
            state=DeadLetter.State.DELIVERED, closed_at=datetime.now(UTC), claimed_at=None, sent_at=None, due_at=None
        )

    def _store(self, rows: list[_Row], resolved: list[UUID]) -> None:
        """Also locks what was resolved."""
        pipelines = {row.pipeline_id for row in rows if row.pipeline_id is not None}
        workspaces = dict(Pipeline.objects.filter(pk__in=pipelines).values_list("pk", "workspace_id"))
        with connection.cursor() as cursor:
            cursor.execute(_STAGE)
            with cursor.cursor.copy(f"COPY dead_letter_stage ({_COLUMNS}) FROM STDIN") as copy:
                for row in rows:
                    if row.pipeline_id is not None:
                        row.workspace_id = workspaces.get(row.pipeline_id)
                    copy.write_row([getattr(row, column) for column in _Row.__slots__])  # type: ignore[attr-defined]
            cursor.execute(_LOCK, {"resolved": resolved})
            waits: Any = {"first": _FIRST_REDELIVERY, "longest": _LONGEST_WAIT, "most": _REDELIVERIES}
            cursor.execute(_UPSERT, waits)


def _headers(record: KafkaRecord) -> list[tuple[str, bytes | None]]:
    headers: Any = record.headers()
    return headers or []


def _row(record: KafkaRecord, headers: dict[str, str]) -> _Row:
    due = headers.get(names.DEAD_DUE)
    return _Row(
        id=uuid7(),
        workspace_id=None,
        pipeline_id=uuids.parsed(headers.get(names.PIPELINE, "")),
        output=headers.get(names.DEAD_OUTPUT, "")[:63],
        stage=headers.get(names.DEAD_STAGE, "")[:50],
        message_id=headers.get(names.MESSAGE_ID, "")[:64],
        version=_number(headers.get(names.VERSION, "")),
        reason=headers.get(names.DEAD_REASON, "unknown")[:100],
        error=headers.get(names.DEAD_ERROR, ""),
        attempts=_number(headers.get(names.DEAD_ATTEMPTS, "")),
        due_at=moment_of(float(due)) if due else None,
        retryable=names.DEAD_RETRYABLE in headers,
        key=bytes(record.key() or b""),  # type: ignore[arg-type]
        body=bytes(record.value() or b""),  # type: ignore[arg-type]
        content_type=headers.get(names.CONTENT_TYPE, "")[:200],
        received_at=headers.get(names.RECEIVED_AT, "")[:40],
        headers=json.dumps({storable(n): v for n, v in headers.items() if n not in _OWN_COLUMNS | _CAUSE}),
        at=moment_of(record.timestamp()[1] / 1000),
    )


class _Attempt(msgspec.Struct):
    """An attempt as it comes from Kafka; its fields are columns of the table."""

    workspace_id: str
    pipeline_id: str
    output: str
    message_id: str
    version: int
    at: str
    number: int
    milliseconds: float
    status: str
    reason: str
    error: str
    response: str


_attempt_decoder = msgspec.json.Decoder(_Attempt)


class AttemptSink(Sink):
    """``firehose_attempts``: one row for each attempt."""

    name = "attempts"
    topic = routing.ATTEMPTS

    _COPY = f"COPY deliveries_attempt (id, {', '.join(_Attempt.__struct_fields__)}) FROM STDIN"
    _STATUS_LENGTH = Attempt._meta.get_field("status").max_length
    _REASON_LENGTH = Attempt._meta.get_field("reason").max_length

    def write(self, records: Sequence[KafkaRecord]) -> None:
        with connection.cursor() as cursor, cursor.cursor.copy(self._COPY) as copy:
            for record in records:
                copy.write_row(self._row(_attempt_decoder.decode(record.value() or b"")))  # type: ignore[arg-type]

    def _row(self, attempt: _Attempt) -> list[Any]:
        # A connector's words, whose length nobody promises.
        attempt.status = attempt.status[: self._STATUS_LENGTH]
        attempt.reason = attempt.reason[: self._REASON_LENGTH]
        values = msgspec.structs.astuple(attempt)
        return [str(uuid_utils.uuid7()), *(storable(value) if isinstance(value, str) else value for value in values)]


def _number(text: str) -> int:
    """0 for what is no number, or none that the column holds."""
    return int(text) if text.isdecimal() and len(text) < 10 else 0
