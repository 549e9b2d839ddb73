"""How many queries a workspace may have, and when those end whose rows nobody reads any more."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db.models.functions import Now

from backend.apps.sql import topics
from backend.apps.sql.errors import SqlError
from backend.apps.sql.models import SqlQuery, SqlSource
from backend.apps.workspaces.models import Workspace

log = logging.getLogger(__name__)

_LEASE = timedelta(seconds=30)
_RENEWED_SECONDS = 3.0


def query_check(workspace: Workspace) -> None:
    """Raises SqlError when the workspace has as many queries as it may have."""
    most = settings.CONSOLE.sql_queries
    if SqlQuery.objects.filter(workspace=workspace, pipeline=None, read_until=None).count() >= most:
        text = f"This workspace has {most} queries, which is the most that it may have: TERMINATE one of them."
        raise SqlError(text, status=409)


def query_name(workspace: Workspace, start: str) -> str:
    """A name that begins so, and that no query of the workspace has."""
    taken = set(SqlQuery.objects.filter(workspace=workspace).values_list("name", flat=True))
    return next(f"{start}_{number}" for number in range(1, len(taken) + 2) if f"{start}_{number}" not in taken)


def readings_end() -> None:
    """Ends the queries whose readers are gone."""
    for query in SqlQuery.objects.filter(read_until__lt=Now()):
        try:
            query_end(query)
        except SqlError as error:
            log.warning("The topic of the query %s stays: %s", query.name, error.message)


def query_end(query: SqlQuery) -> None:
    """Deletes the query, and the topic with its rows if it is one that is read. Raises SqlError."""
    query.delete()
    if query.read_until is not None and query.plan is not None:
        topics.topic_delete(query.plan["topic"])


class Lease:
    """Keeps a query that is read, as long as it is renewed."""

    def __init__(self, query: SqlQuery) -> None:
        self.query = query
        self._renewed = time.monotonic()

    def renew(self) -> bool:
        """Whether the query goes on: nobody has terminated it. Called at least every few seconds. Raises SqlError when
        Spark says that it fails."""
        if time.monotonic() - self._renewed < _RENEWED_SECONDS:
            return True
        self._renewed = time.monotonic()
        query = SqlQuery.objects.filter(pk=self.query.pk)
        if error := query.values_list("error", flat=True).first():
            raise SqlError(f"The query fails: {error}", status=502)
        return query.update(read_until=Now() + _LEASE) == 1


@contextmanager
def reading(
    *, workspace: Workspace, start: str, statement: str, reads: list[SqlSource], plan: dict[str, Any] | None = None
) -> Iterator[Lease]:
    """A query that is read meanwhile. Raises SqlError when the workspace may not have another."""
    readings_end()
    most = settings.CONSOLE.sql_readings
    if SqlQuery.objects.filter(workspace=workspace, read_until__isnull=False).count() >= most:
        text = f"{most} queries are read in this workspace, which is the most: end one of them, or TERMINATE it."
        raise SqlError(text, status=409)
    query = SqlQuery.objects.create(
        workspace=workspace,
        name=query_name(workspace, start),
        statement=statement,
        makes_sink=False,
        plan=plan,
        running=plan is None,
        read_until=Now() + _LEASE,
    )
    query.reads.set(reads)
    try:
        yield Lease(query)
    finally:
        query_end(query)
