"""Live counts and errors from Redis, and their history from PostgreSQL."""

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from backend.apps.connectors.models import Connector
from backend.apps.monitoring.models import AlertRule, CountMinute
from backend.apps.pipelines.models import Pipeline
from backend.apps.pipelines.selectors import pipelines_by_connector, published_outputs
from backend.apps.workspaces.models import Workspace
from backend.network.redis_client import redis_client
from backend.telemetry import events, keys

Seconds = dict[int, dict[str, int]]

_LATENCY = events.LATENCY.encode()
_MOST_STEPS = 360
_HOURS_READ = 25
"""24 full ones and the current one."""
_ERRORS_READ = 20
_RATE_SECONDS = 3
_SETTLING_SECONDS = 2
"""The data plane reports once a second, so that the newest seconds are incomplete."""


def counts_now(pipeline_id: str, minutes: int) -> dict[str, Any]:
    """Counts of one moment, without latency buckets: ``last_24_hours`` by event, over the last 24 full hours and the
    current one, and ``by_second`` those of the last minutes, from the second ``since`` on, by Unix second and event."""
    now = int(time.time())
    since = now - minutes * 60
    with redis_client().pipeline(transaction=True) as batch:
        _ask_minutes(batch, pipeline_id, since, now)
        for hour in range(now // 3600 - _HOURS_READ + 1, now // 3600 + 1):
            batch.hgetall(keys.by_hour(pipeline_id, hour))
        hashes = batch.execute()
    totals: Counter[str] = Counter()
    for counts in hashes[-_HOURS_READ:]:
        totals.update({name.decode(): int(n) for name, n in counts.items() if not name.startswith(_LATENCY)})
    return {"since": since, "last_24_hours": dict(totals), "by_second": seconds_of(hashes[:-_HOURS_READ], since=since)}


def activity_of(outputs: Mapping[str, Iterable[str]]) -> list[dict[str, Any]]:
    """For each pipeline, given with the names of its published outputs: what was delivered and what failed in each of
    the last 24 hours, of which the last is the current one; what came in since then and still waits; and the latest
    error."""
    hours = _day()
    with redis_client().pipeline(transaction=False) as batch:
        for pipeline_id in outputs:
            for hour in hours:
                batch.hgetall(keys.by_hour(pipeline_id, hour))
            batch.lindex(keys.errors(pipeline_id), 0)
        answers = iter(batch.execute())
    activity = []
    for pipeline_id, names in outputs.items():
        counts = [Counter({event.decode(): int(n) for event, n in next(answers).items()}) for _ in hours]
        error = next(answers)
        activity.append(
            {
                "pipeline": pipeline_id,
                "delivered": [sum(n for event, n in hour.items() if events.is_delivered(event)) for hour in counts],
                "failed": [sum(n for event, n in hour.items() if events.is_dead(event)) for hour in counts],
                "backlog": _backlog(sum(counts, Counter()), names),
                "last_error": json.loads(error) if error else None,
            }
        )
    return activity


def _day() -> range:
    """The last 24 hours, of which the last is the current one."""
    now = int(time.time()) // 3600
    return range(now - 23, now + 1)


def ask_backlog(batch: Any, pipeline_id: str, outputs: Iterable[str]) -> None:
    """For the counts from which ``backlog_in`` tells what waits for these outputs."""
    if events_asked := _backlog_events(outputs):
        for hour in _day():
            batch.hmget(keys.by_hour(pipeline_id, hour), events_asked)


def backlog_in(answers: Iterable[Sequence[bytes | None]], outputs: Iterable[str]) -> int | None:
    """What waits, as ``activity_of`` tells it. Raises ValueError if a count is no number."""
    names = list(outputs)
    asked = _backlog_events(names)
    counts: Counter[str] = Counter()
    for hour in answers:
        counts.update({event: int(n) for event, n in zip(asked, hour, strict=True) if n is not None})
    return _backlog(counts, names)


def _backlog_events(outputs: Iterable[str]) -> list[str]:
    names = [
        event for name in outputs for event in (events.delivered(name), events.dead(name), events.redelivered(name))
    ]
    if not names:
        return []
    return [*events.CAME_IN, events.DROPPED, *events.STAGES_DEAD, *events.STAGES_REDELIVERED, *names]


def _backlog(counts: Counter[str], outputs: Iterable[str]) -> int | None:
    """Messages that came in and were neither dropped nor, by the output that lags most, delivered or given up; None
    without outputs. A redelivered dead letter, which was given up before, is one message still."""
    came_in = sum(counts[event] for event in (*events.CAME_IN, *events.STAGES_REDELIVERED))
    reached = came_in - sum(counts[event] for event in (events.DROPPED, *events.STAGES_DEAD))
    waiting = [
        reached + counts[events.redelivered(name)] - counts[events.delivered(name)] - counts[events.dead(name)]
        for name in outputs
    ]
    # Copies, and messages from before, are delivered too.
    return max(0, *waiting) if waiting else None


def connector_activity(workspace: Workspace) -> list[dict[str, Any]]:
    """For each connector of the workspace that pipelines use: how many do, and the latest error of its deliveries among
    the newest ones of these pipelines."""
    outputs = published_outputs(Pipeline.objects.filter(workspace=workspace))
    with redis_client().pipeline(transaction=False) as batch:
        for pipeline_id in outputs:
            ask_errors(batch, pipeline_id)
        answers = batch.execute()
    latest: dict[str, dict[str, Any]] = {}
    for connectors, entries in zip(outputs.values(), answers, strict=True):
        for error in map(json.loads, entries):
            kind, _, name = error["stage"].partition(" ")
            connector = connectors.get(name) if kind in ("output", "export") else None
            if connector is not None and (connector not in latest or error["at"] > latest[connector]["at"]):
                latest[connector] = error
    return [
        {"connector": connector, "pipelines": n, "last_error": latest.get(str(connector))}
        for connector, n in pipelines_by_connector(workspace).items()
    ]


def counts_by_second(pipeline_id: str, minutes: int) -> Seconds:
    """Counts of the last minutes, by Unix second and event."""
    now = int(time.time())
    since = now - minutes * 60
    with redis_client().pipeline(transaction=False) as batch:
        _ask_minutes(batch, pipeline_id, since, now)
        return seconds_of(batch.execute(), since=since)


def _ask_minutes(batch: Any, pipeline_id: str, since: int, now: int) -> None:
    """For the counts of the minutes that have these seconds."""
    for minute in range(since // 60, now // 60 + 1):
        batch.hgetall(keys.by_second(pipeline_id, minute))


def ask_errors(batch: Any, pipeline_id: str) -> None:
    """For the newest errors of a pipeline, as JSON."""
    batch.lrange(keys.errors(pipeline_id), 0, _ERRORS_READ - 1)


def rates_of(outputs: Mapping[str, Iterable[str]]) -> dict[str, float]:
    """Messages per second that came in (``accepted``), were ``delivered`` and ``failed``, of all these pipelines
    together. Each is given with its outputs, whose counts alone are read: of many pipelines this takes a fraction of
    the time that all counts would."""
    last = int(time.time()) - _SETTLING_SECONDS
    seconds = range(last - _RATE_SECONDS + 1, last + 1)
    counted = [(pipeline_id, _rated_events(names)) for pipeline_id, names in outputs.items()]
    with redis_client().pipeline(transaction=False) as batch:
        for pipeline_id, rated in counted:
            for second in seconds:
                batch.hmget(keys.by_second(pipeline_id, second // 60), [f"{event}|{second}" for event in rated])
        answers = iter(batch.execute())
    totals = {"accepted": 0, "delivered": 0, "failed": 0}
    for _, rated in counted:
        for _ in seconds:
            for name, n in zip(rated.values(), next(answers), strict=True):
                totals[name] += int(n or 0)
    return {name: total / _RATE_SECONDS for name, total in totals.items()}


def _rated_events(outputs: Iterable[str]) -> dict[str, str]:
    """The events of a pipeline with these outputs, each with the rate to which it counts."""
    rated = dict.fromkeys(events.CAME_IN, "accepted") | dict.fromkeys(events.STAGES_DEAD, "failed")
    for name in outputs:
        rated |= {events.delivered(name): "delivered", events.dead(name): "failed"}
    return rated


def counts_history(pipeline_ids: Iterable[UUID], hours: int) -> list[dict[str, Any]]:
    """Counts of the last hours, summed over the pipelines, without latency buckets, in at most 360 steps of whole
    minutes: ``at`` is a step's beginning (Unix time), ``seconds`` its length, and ``waiting`` how many messages waited
    at the last minute of it for which that is known, None if it is for none. Steps in which nothing happened and
    nothing waited are left out."""
    step = max(1, hours * 60 // _MOST_STEPS) * 60
    since = (int(time.time()) - hours * 3600) // step * step
    steps: dict[int, Counter[str]] = {}
    waiting = _LastWaiting()
    minutes = CountMinute.objects.filter(pipeline_id__in=pipeline_ids, minute__gte=datetime.fromtimestamp(since, UTC))
    for minute, counts, waited in minutes.order_by("minute").values_list("minute", "counts", "waiting"):
        at = int(minute.timestamp()) // step * step
        shown = {event: n for event, n in counts.items() if not event.startswith(events.LATENCY)}
        steps.setdefault(at, Counter()).update(shown)
        waiting.add(at, minute, waited)
    return [
        {"at": at, "seconds": step, "counts": dict(counts), "waiting": waiting.of(at)} for at, counts in steps.items()
    ]


class _LastWaiting:
    """What waited at the last minute of each step, summed over the pipelines."""

    def __init__(self) -> None:
        self._by_step: dict[int, tuple[datetime, int]] = {}

    def add(self, step: int, minute: datetime, waiting: int | None) -> None:
        """For one pipeline, in the order of the minutes."""
        if waiting is None:
            return
        last, total = self._by_step.get(step, (minute, 0))
        self._by_step[step] = (minute, (total if last == minute else 0) + waiting)

    def of(self, step: int) -> int | None:
        return self._by_step[step][1] if step in self._by_step else None


_NEWEST_MINUTES = 5


def newest_waiting(workspace: Workspace) -> dict[str, Any] | None:
    """What waited at the last minute that is written: ``at`` (Unix time), ``messages`` of all pipelines of the
    workspace together, and those of each of the ``pipelines`` for which any waited. None if nothing is known of the
    last minutes, or nothing happened in them and nothing waited."""
    since = datetime.fromtimestamp(time.time() - _NEWEST_MINUTES * 60, UTC)
    ids = Pipeline.objects.filter(workspace=workspace).values("pk")
    known = CountMinute.objects.filter(pipeline_id__in=ids, minute__gte=since).exclude(waiting=None)
    rows = list(known.values_list("minute", "pipeline_id", "waiting"))
    if not rows:
        return None
    newest = max(minute for minute, _, _ in rows)
    pipelines = {str(pk): waiting for minute, pk, waiting in rows if minute == newest and waiting}
    return {"at": int(newest.timestamp()), "messages": sum(pipelines.values()), "pipelines": pipelines}


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
