"""Connections to PostgreSQL that do not wait without limit for a server that hangs or a host that has vanished."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import psycopg
from psycopg import errors

_ANSWER_SECONDS = 60.0

_limit: ContextVar[float | None] = ContextVar("postgresql_answer_seconds", default=_ANSWER_SECONDS)

TCP: dict[str, Any] = {
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 11_000,
    # The server ends a statement whose client is gone.
    "options": "-c client_connection_check_interval=5s",
}
"""Parameters of a connection: both sides notice within about eleven seconds that the other has vanished."""


@contextmanager
def answers_within(seconds: float | None) -> Iterator[None]:
    """How long each statement may take in this block and thread, instead of a minute; None is for ever. It can be used
    as a decorator."""
    token = _limit.set(seconds)
    try:
        yield
    finally:
        _limit.reset(token)


class BoundedConnection(psycopg.Connection[Any]):
    """Raises OperationalError, and closes, when the server has not answered in time.

    PostgreSQL's own ``statement_timeout`` needs a server that works.
    """

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        limit = _limit.get()
        if limit is None or (timeout is not None and timeout <= limit):
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, limit)
        except errors._WaitTimeout:
            self.pgconn.finish()  # the answer, if there will be one, belongs to no later statement
            raise psycopg.OperationalError(f"PostgreSQL has not answered within {limit:g} seconds.") from None
