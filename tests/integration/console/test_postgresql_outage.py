"""A PostgreSQL that hangs, or whose host vanishes, is noticed in time."""

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import OperationalError, connections
from django.db.backends.postgresql.base import DatabaseWrapper

from backend.apps.monitoring import health
from backend.config.settings import base
from backend.network.postgresql import answers_within
from tests.infra import Server

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def database() -> Iterator[DatabaseWrapper]:
    """Connects as the console does, with a pool; the tests' own connections have none."""
    pool = base.DATABASES["default"]["OPTIONS"]
    options = connections["default"].settings_dict | {"OPTIONS": pool}
    wrapper = DatabaseWrapper(options, alias="as-the-console")
    yield wrapper
    wrapper.close()
    wrapper.close_pool()


def query(database: DatabaseWrapper, sql: str) -> Any:
    with database.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()[0]


@contextmanager
def hanging(process: int) -> Iterator[None]:
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


def test_a_server_that_hangs_is_an_outage_and_works_again_afterwards(database: DatabaseWrapper) -> None:
    with hanging(query(database, "SELECT pg_backend_pid()")):
        began = time.monotonic()
        with answers_within(0.5), pytest.raises(OperationalError, match=r"not answered within 0\.5 seconds"):
            query(database, "SELECT 1")
        assert time.monotonic() - began < 30
        database.close()
        assert query(database, "SELECT 1") == 1  # on another connection, since that one is in an unknown state


def test_a_statement_may_take_as_long_as_its_caller_says(database: DatabaseWrapper) -> None:
    with answers_within(0.2), pytest.raises(OperationalError):
        query(database, "SELECT 1 FROM pg_sleep(60)")
    database.close()
    with answers_within(0.2), answers_within(None):
        assert query(database, "SELECT 1 FROM pg_sleep(0.5)") == 1


def test_the_server_ends_a_statement_that_nobody_waits_for(database: DatabaseWrapper) -> None:
    assert query(database, "SHOW client_connection_check_interval") == "5s"


def test_a_host_that_vanishes_is_noticed_by_tcp(database: DatabaseWrapper) -> None:
    query(database, "SELECT 1")
    with socket.socket(fileno=os.dup(database.connection.pgconn.socket)) as used:

        def option(name: int) -> int:
            return used.getsockopt(socket.IPPROTO_TCP, name)

        assert used.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        silent = option(socket.TCP_KEEPIDLE) + option(socket.TCP_KEEPINTVL) * option(socket.TCP_KEEPCNT)
        assert silent <= 15
        assert 0 < option(socket.TCP_USER_TIMEOUT) <= 15_000  # while something is sent


def test_health_answers_while_postgresql_hangs(
    database: DatabaseWrapper, postgresql: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "connection", database)
    monkeypatch.setattr(health, "_SECONDS", 0.5)
    backend = query(database, "SELECT pg_backend_pid()")
    with hanging(backend):
        began = time.monotonic()
        assert health._outcome(health._postgresql) == "PostgreSQL does not answer."
        assert time.monotonic() - began < 30
    assert health._outcome(health._postgresql) == "ok"
