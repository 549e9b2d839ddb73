"""Live counts and errors from Redis, and their history from PostgreSQL."""

import json
import time
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from backend.apps.connectors.models import Connector
from backend.apps.monitoring.models import AlertRule, CountMinute
from backend.network.redis_client import redis_client
from backend.telemetry import events, keys

Seconds = dict[int, dict[str, int]]

_LATENCY = events.LATENCY.encode()
_MOST_STEPS = 360
_HOURS_READ = 25
"""24 full ones and the current one."""


def counts_now(pipeline_id: str, minutes: int) -> dict[str, Any]:
    """Counts of one moment, without latency buckets: ``last_24_hours`` by event, over the last 24 full hours and the
    current one, and ``by_second`` those of the last minutes, from the second ``since`` on, by Unix second and event."""
    now = int(time.time())
    since = now - minutes * 60
    with redis_client().pipeline(transaction=True) as batch:
        for minute in range(since // 60, now // 60 + 1):
            batch.hgetall(keys.by_second(pipeline_id, minute))
        for hour in range(now // 3600 - _HOURS_READ + 1, now // 3600 + 1):
            batch.hgetall(keys.by_hour(pipeline_id, hour))
        hashes = batch.execute()
    totals: Counter[str] = Counter()
    for counts in hashes[-_HOURS_READ:]:
        totals.update({name.decode(): int(n) for name, n in counts.items() if not name.startswith(_LATENCY)})
    return {"since": since, "last_24_hours": dict(totals), "by_second": seconds_of(hashes[:-_HOURS_READ], since=since)}


def activity_of(pipeline_ids: Iterable[str]) -> list[dict[str, Any]]:
    """For each pipeline, what was delivered and what failed in each of the last 24 hours, of which the last is the
    current one, and the latest error."""
    now = int(time.time()) // 3600
    hours = range(now - 23, now + 1)
    pipelines = list(pipeline_ids)
    with redis_client().pipeline(transaction=False) as batch:
        for pipeline_id in pipelines:
            for hour in hours:
                batch.hgetall(keys.by_hour(pipeline_id, hour))
            batch.lindex(keys.errors(pipeline_id), 0)
        answers = iter(batch.execute())
    activity = []
    for pipeline_id in pipelines:
        counts = [{event.decode(): int(n) for event, n in next(answers).items()} for _ in hours]
        error = next(answers)
        activity.append(
            {
                "pipeline": pipeline_id,
                "delivered": [sum(n for event, n in hour.items() if events.is_delivered(event)) for hour in counts],
                "failed": [sum(n for event, n in hour.items() if events.is_dead(event)) for hour in counts],
                "last_error": json.loads(error) if error else None,
            }
        )
    return activity


def counts_by_second(pipeline_id: str, minutes: int) -> Seconds:
    """Counts of the last minutes, by Unix second and event."""
    now = int(time.time())
    with redis_client().pipeline(transaction=False) as batch:
        for minute in range(now // 60 - minutes, now // 60 + 1):
            batch.hgetall(keys.by_second(pipeline_id, minute))
        return seconds_of(batch.execute(), since=now - minutes * 60)


def counts_history(pipeline_ids: Iterable[UUID], hours: int) -> list[dict[str, Any]]:
    """Counts of the last hours, summed over the pipelines, without latency buckets, in at most 360 steps of whole
    minutes: ``at`` is a step's beginning (Unix time), ``seconds`` its length. Steps without counts are left out."""
    step = max(1, hours * 60 // _MOST_STEPS) * 60
    since = (int(time.time()) - hours * 3600) // step * step
    steps: dict[int, Counter[str]] = {}
    minutes = CountMinute.objects.filter(pipeline_id__in=pipeline_ids, minute__gte=datetime.fromtimestamp(since, UTC))
    for minute, counts in minutes.order_by("minute").values_list("minute", "counts"):
        at = int(minute.timestamp()) // step * step
        shown = {event: n for event, n in counts.items() if not event.startswith(events.LATENCY)}
        steps.setdefault(at, Counter()).update(shown)
    return [{"at": at, "seconds": step, "counts": dict(counts)} for at, counts in steps.items()]


def seconds_of(hashes: list[dict[bytes, bytes]], *, since: int) -> Seconds:
    """The fields ``event|second`` of the hashes, from that second on."""
    seconds: Seconds = {}
    for counts in hashes:
        for name, n in counts.items():
            if name.startswith(_LATENCY):
                continue
            event, _, second = name.decode().rpartition("|")
            if int(second) >= since:
                seconds.setdefault(int(second), {})[event] = int(n)
    return dict(sorted(seconds.items()))


def alert_rules_using(connector: Connector) -> QuerySet[AlertRule]:
    return AlertRule.objects.filter(connector=connector)


def latest_errors(pipeline_id: str) -> list[dict[str, Any]]:
    entries: Any = redis_client().lrange(keys.errors(pipeline_id), 0, -1)
    return [json.loads(entry) for entry in entries]
