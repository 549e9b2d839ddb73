"""Whether an application is alive, as independent witnesses see it.

The driver reports itself every two seconds by two ways that share nothing: to Redis, and through the manager to
PostgreSQL. The age of a report is measured by the clock of the server that holds it.
"""

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models.functions import Now
from redis.exceptions import RedisError

from backend.apps.jobs.models import SparkJob
from backend.manager_api.jobs import manager_answers
from backend.network.redis_client import redis_client
from backend.settings import platform_settings
from backend.telemetry import keys

FRESH_SECONDS = 10.0


@dataclass(frozen=True)
class Sighting:
    """``alive`` is None when no witness can be asked, which says nothing about the application. ``heartbeat`` is the
    one in Redis, if it is fresh and of the job's current application."""

    alive: bool | None
    heartbeat: dict[str, Any] | None = None


def look(job: SparkJob) -> Sighting:
    """One sign of life is enough; only witnesses that answer count."""
    try:
        beat = heartbeat_read(job.name)
        redis_answers = True
    except RedisError:
        beat, redis_answers = None, False
    if beat is not None and beat["age"] < FRESH_SECONDS and beat.get("token", 0) == job.token:
        return Sighting(True, beat)
    if reported_recently(job):
        return Sighting(True)
    return Sighting(False if redis_answers or manager_answers(platform_settings()) else None)


def heartbeat_read(name: str) -> dict[str, Any] | None:
    """The application's last heartbeat and its ``age`` in seconds, or None. Raises RedisError."""
    key = keys.job_heartbeat(name)
    with redis_client().pipeline(transaction=False) as batch:
        batch.get(key)
        batch.pttl(key)
        raw, milliseconds_left = batch.execute()
    return {**json.loads(raw), "age": keys.HEARTBEAT_KEPT_SECONDS - milliseconds_left / 1000} if raw else None


def reported_recently(job: SparkJob) -> bool:
    """Whether the job's current application has just reported itself to the manager."""
    since = Now() - timedelta(seconds=FRESH_SECONDS)
    return SparkJob.objects.filter(pk=job.pk, token=job.token, reported_at__gt=since).exists()
