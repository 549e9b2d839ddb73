"""Health of the installation's components, checked by real requests."""

import time
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

from backend.apps.jobs.services import heartbeat
from backend.network.redis_client import redis_client
from backend.settings import platform_settings
from backend.telemetry import keys

_SECONDS = 2.0
_HEARTBEAT_FRESH_SECONDS = 10.0


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
    try:
        check()
    except NotAnsweringError as error:
        return str(error)
    return "ok"


def _postgresql() -> None:
    close_old_connections()
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except OperationalError:
        raise NotAnsweringError("PostgreSQL does not answer.") from None
    finally:
        connection.close()


def _redis() -> None:
    try:
        redis_client().ping()
    except RedisError:
        raise NotAnsweringError("Redis does not answer.") from None


@lru_cache
def _admin() -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": platform_settings().kafka_bootstrap_servers,
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
    beat = heartbeat(keys.DEFAULT_JOB)
    if beat is None or time.time() - float(beat["at"]) > _HEARTBEAT_FRESH_SECONDS:  # type: ignore[arg-type]
        raise NotAnsweringError("No Spark application sends heartbeats; messages wait in Kafka.")
    if beat["state"] != "running":
        raise NotAnsweringError(f"The Spark application is {beat['state']}; messages wait in Kafka.")
