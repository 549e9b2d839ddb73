"""The health page's checks, against real servers."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection

from backend.apps.monitoring import health
from backend.network.redis_client import redis_client
from backend.telemetry import keys
from tests.infra import Server

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_check_gives_its_connection_back(redis_server: Server) -> None:
    """Each check runs in a thread that ends with it. What it kept would be missing from the console's pool for ever."""
    redis_client().delete(keys.job_heartbeat(keys.DEFAULT_JOB))  # so that PostgreSQL is asked about Spark

    def check() -> tuple[str, bool]:
        return health._outcome(health._spark), connection.connection is None

    with ThreadPoolExecutor(1) as thread:
        outcome, is_given_back = thread.submit(check).result()
    assert outcome.startswith("There is no Spark application")
    assert is_given_back
