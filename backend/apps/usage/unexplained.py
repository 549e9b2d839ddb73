"""Billed deliveries that no message has explained yet."""

from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import NamedTuple, Self
from uuid import UUID

from django.db import connection

from backend.apps.usage.billed import Delivery

_CREATE = """
CREATE TEMPORARY TABLE usage_unexplained AS
SELECT message_id, output_id, at FROM usage_billed WHERE at >= %s AND at < %s;
CREATE INDEX ON usage_unexplained (message_id);
ANALYZE usage_unexplained
"""

_EXPLAIN = """
DELETE FROM usage_unexplained AS u
USING unnest(%s::uuid[], %s::uuid[], %s::text[]) AS explained (message_id, pipeline_id, output)
JOIN usage_output AS o USING (pipeline_id, output)
WHERE u.message_id = explained.message_id AND u.output_id = o.id
"""

_EXPLAIN_MESSAGES = """
DELETE FROM usage_unexplained AS u
USING unnest(%s::uuid[], %s::uuid[]) AS explained (message_id, pipeline_id) JOIN usage_output AS o USING (pipeline_id)
WHERE u.message_id = explained.message_id AND u.output_id = o.id
"""

_FIRST = """
SELECT o.pipeline_id, o.output, u.message_id, u.at
FROM usage_unexplained AS u JOIN usage_output AS o ON o.id = u.output_id
ORDER BY u.at, u.message_id LIMIT %s
"""


class Overbilled(NamedTuple):
    """A delivery that was billed although no message accounts for it. The id of a message that is no UUID is shown as
    the one that the table of billed deliveries has for it."""

    pipeline_id: UUID
    output: str
    message_id: UUID
    at: datetime


class Unexplained:
    """The deliveries that were billed from ``since`` up to but not including ``until``. A temporary table of the
    connection holds them, so that memory does not grow with their number; one can exist at a time."""

    def __init__(self, since: datetime, until: datetime) -> None:
        self._range = (since, until)
        self.count = 0

    def __enter__(self) -> Self:
        with connection.cursor() as cursor:
            create, *rest = _CREATE.split(";")
            cursor.execute(create, self._range)
            self.count = cursor.rowcount
            for statement in rest:
                cursor.execute(statement)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE IF EXISTS usage_unexplained")

    def explain(self, deliveries: Sequence[Delivery]) -> None:
        """Takes out what messages account for."""
        self._delete(_EXPLAIN, deliveries)

    def explain_messages(self, messages: Sequence[tuple[str, str]]) -> None:
        """Takes out all deliveries of these (message, pipeline)."""
        self._delete(_EXPLAIN_MESSAGES, messages)

    def forget_before(self, moment: datetime) -> int:
        """Takes out what was billed before; returns how many."""
        before = self.count
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM usage_unexplained WHERE at < %s", [moment])
            self.count -= cursor.rowcount
        return before - self.count

    def first(self, limit: int) -> list[Overbilled]:
        """Those that are left, the oldest first."""
        with connection.cursor() as cursor:
            cursor.execute(_FIRST, [limit])
            return [Overbilled(*row) for row in cursor.fetchall()]

    def _delete(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        if not rows or not self.count:
            return
        with connection.cursor() as cursor:
            cursor.execute(statement, [list(column) for column in zip(*rows, strict=True)])
            self.count -= cursor.rowcount
