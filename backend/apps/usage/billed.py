"""The billed deliveries: one row for each message and output, which is what makes billing happen once.

Neither the table nor its key has a time: a copy of a message has its id, and whatever else may differ.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import NAMESPACE_OID, UUID, uuid5

from django.db import connection

_REMOVED_AT_ONCE = 10_000

_is_canonical = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch


class Delivery(NamedTuple):
    """A message and the output that it was delivered to.

    Ids are the text of UUIDs: one of these is made for every delivered message, and to make and write objects of
    ``UUID`` would take most of the time of billing it.
    """

    message_id: str
    pipeline_id: str
    output: str

    @classmethod
    def of(cls, message_id: str, pipeline_id: str, output: str) -> "Delivery":
        return cls(message_uuid(message_id), pipeline_id, output)


class Billing(NamedTuple):
    """One delivery that is to be billed."""

    delivery: Delivery
    workspace_id: str
    at: datetime
    bytes: int


_STAGE = """
CREATE TEMPORARY TABLE IF NOT EXISTS usage_stage (
    message_id uuid, pipeline_id uuid, output text, workspace_id uuid, at timestamptz, bytes int
) ON COMMIT DELETE ROWS
"""

_OUTPUTS = """
INSERT INTO usage_output (workspace_id, pipeline_id, output)
SELECT DISTINCT workspace_id, pipeline_id, output FROM usage_stage AS s
WHERE NOT EXISTS (SELECT FROM usage_output AS o WHERE o.pipeline_id = s.pipeline_id AND o.output = s.output)
ORDER BY pipeline_id, output
ON CONFLICT DO NOTHING
"""

# Both in a fixed order, so that two workers cannot deadlock.
_BILL = """
WITH billed AS (
    INSERT INTO usage_billed (message_id, output_id, at, bytes)
    SELECT s.message_id, o.id, s.at, s.bytes
    FROM usage_stage AS s JOIN usage_output AS o USING (pipeline_id, output)
    ORDER BY 1, 2
    ON CONFLICT DO NOTHING
    RETURNING output_id, at, bytes
)
INSERT INTO usage_usageminute AS u (workspace_id, pipeline_id, output, minute, deliveries, bytes)
SELECT o.workspace_id, o.pipeline_id, o.output, date_trunc('minute', billed.at), count(*), sum(billed.bytes)
FROM billed JOIN usage_output AS o ON o.id = billed.output_id
GROUP BY 1, 2, 3, 4
ORDER BY 2, 3, 4
ON CONFLICT (pipeline_id, output, minute)
DO UPDATE SET deliveries = u.deliveries + excluded.deliveries, bytes = u.bytes + excluded.bytes
"""

_FIND = """
SELECT wanted.number
FROM unnest(%s::uuid[], %s::uuid[], %s::text[]) WITH ORDINALITY AS wanted (message_id, pipeline_id, output, number)
JOIN usage_output AS o USING (pipeline_id, output)
JOIN usage_billed AS b ON b.message_id = wanted.message_id AND b.output_id = o.id
"""

_DELIVERED = """
SELECT o.pipeline_id, o.output, b.at, b.bytes
FROM usage_billed AS b JOIN usage_output AS o ON o.id = b.output_id
WHERE b.message_id = %s AND o.workspace_id = %s
ORDER BY b.at, o.output
"""

_REMOVE = """
DELETE FROM usage_billed WHERE ctid = ANY (ARRAY(SELECT ctid FROM usage_billed WHERE at < %s LIMIT %s))
"""


def message_uuid(message_id: str) -> str:
    """The text of the UUID for a message's id, which is whatever its producer wrote."""
    if _is_canonical(message_id):
        return message_id
    try:
        return str(UUID(message_id))
    except ValueError:
        return str(uuid5(NAMESPACE_OID, message_id))


def bill(billings: Iterable[Billing]) -> None:
    """Bills each delivery that has not been billed before, and adds it to the usage of its minute.

    Called within a transaction.
    """
    with connection.cursor() as cursor:
        cursor.execute(_STAGE)
        statement = "COPY usage_stage (message_id, pipeline_id, output, workspace_id, at, bytes) FROM STDIN"
        with cursor.cursor.copy(statement) as copy:
            for delivery, *rest in billings:
                copy.write_row((*delivery, *rest))
        cursor.execute(_OUTPUTS)
        cursor.execute(_BILL)


def billed_among(deliveries: Sequence[Delivery]) -> set[Delivery]:
    """Those that have been billed."""
    if not deliveries:
        return set()
    with connection.cursor() as cursor:
        cursor.execute(_FIND, [list(column) for column in zip(*deliveries, strict=True)])
        return {deliveries[number - 1] for (number,) in cursor.fetchall()}


def billed_of(message_id: str, workspace_id: UUID) -> list[dict[str, Any]]:
    """The billed deliveries of a message, oldest first."""
    with connection.cursor() as cursor:
        cursor.execute(_DELIVERED, [message_uuid(message_id), workspace_id])
        return [
            {"pipeline_id": pipeline_id, "output": output, "at": at, "bytes": size}
            for pipeline_id, output, at, size in cursor.fetchall()
        ]


def billed_remove(*, keep: timedelta) -> int:
    """Removes deliveries that were billed longer ago than that, in batches; returns how many. Usage stays."""
    oldest = datetime.now(UTC) - keep
    removed = 0
    with connection.cursor() as cursor:
        while True:
            cursor.execute(_REMOVE, [oldest, _REMOVED_AT_ONCE])
            batch: int = cursor.rowcount
            removed += batch
            if batch < _REMOVED_AT_ONCE:
                return removed
