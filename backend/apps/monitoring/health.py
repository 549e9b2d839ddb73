"""Health of the installation's components, checked by real requests."""

import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from django.conf import settings
from django.db import OperationalError, close_old_connections, connection
from redis.exceptions import RedisError

from backend.apps.jobs.selectors import application_problems
from backend.network.postgresql import answers_within
from backend.network.redis_client import redis_client
from backend.settings import platform_settings

_SECONDS = 2.0


class NotAnsweringError(Exception):
    """A component is unavailable; the message describes how."""


def components() -> dict[str, str]:
    """Each component with "ok", or a sentence on what is wrong."""
    checks: dict[str, Callable[[], None]] = {
        "postgresql": _postgresql,
        "redis": _redis,
        "kafka": _kafka,
        "ingest": _ingest,
        "spark": _spark,
    }
    with ThreadPoolExecutor(len(checks)) as pool:
        return dict(zip(checks, pool.map(_outcome, checks.values()), strict=True))


def _outcome(check: Callable[[], None]) -> str:
    close_old_connections()
    try:
        with answers_within(_SECONDS):
            check()
    except NotAnsweringError as error:
        return str(error)
    finally:
        # The thread ends with this check: its connection would stay taken from the pool for ever.
        connection.close()
    return "ok"


def _postgresql() -> None:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except OperationalError:
        raise NotAnsweringError("PostgreSQL does not answer.") from None


def _redis() -> None:
    try:
        redis_client().ping()
    except RedisError:
        raise NotAnsweringError("Redis does not answer.") from None


@lru_cache
def _admin() -> AdminClient:
    return AdminClient(
        {
            **platform_settings().kafka.client(),
            "reconnect.backoff.max.ms": 1000,
            "log_level": 0,
        }
    )


def _kafka() -> None:
    try:
        _admin().list_topics(timeout=_SECONDS)
    except KafkaException:
        raise NotAnsweringError("Kafka does not answer.") from None


def _ingest() -> None:
    try:
        with urllib.request.urlopen(f"{settings.CONSOLE.ingest_url}/health/ready", timeout=_SECONDS):
            return
    except urllib.error.HTTPError:
        raise NotAnsweringError("The HTTP input is running, but cannot accept messages now.") from None
    except OSError:
        raise NotAnsweringError("The HTTP input does not answer.") from None


def _spark() -> None:
    try:
        problem = application_problems()
    except OperationalError:
        problem = "Whether the Spark application runs is unknown: neither Redis nor PostgreSQL shows it running."
    if problem:
        raise NotAnsweringError(problem)
