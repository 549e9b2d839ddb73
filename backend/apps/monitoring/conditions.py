"""How pipelines are: what PostgreSQL and Redis know of many, in as many queries and requests as for one."""

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import OuterRef, QuerySet, Subquery
from redis.exceptions import RedisError

from backend.apps.deliveries.selectors import breakers_not_closed, letters_by_reason
from backend.apps.exports.selectors import gathered_messages, unstored_files
from backend.apps.jobs.selectors import StageTroubles, stage_troubles
from backend.apps.manager.models import InputLease
from backend.apps.monitoring.selectors import ask_errors
from backend.apps.pipelines.models import Pipeline, PipelineVersion, Provisioning, Registration
from backend.apps.pipelines.selectors import version_failures
from backend.apps.workspaces.models import Workspace
from backend.domain import status
from backend.domain.breaker import BreakerState
from backend.domain.reasons import Reason
from backend.network.redis_client import redis_client
from backend.telemetry import events, keys

_LATENCY = events.LATENCY.encode()
_WAITS_FOR_ITS_TURN = Reason.RATE_LIMITED
"""The reason of dead letters that need nobody."""

Letters = Mapping[UUID, list[dict[str, Any]]]


@dataclass(frozen=True)
class Condition:
    """What is to be known of a pipeline at a glance; ``letters`` are its open dead letters by reason, most frequent
    first, and ``breakers`` those that are not closed."""

    pipeline: UUID
    status: status.Status
    letters: list[dict[str, Any]]
    breakers: list[dict[str, Any]]

    @property
    def dead_letters(self) -> int:
        return sum(group["count"] for group in self.letters)

    @property
    def oldest(self) -> datetime | None:
        return min((group["oldest"] for group in self.letters), default=None)


@dataclass(frozen=True)
class _Live:
    """What Redis knows."""

    breakers: dict[UUID, list[dict[str, Any]]] = field(default_factory=dict)
    traffic: dict[UUID, status.Traffic] = field(default_factory=dict)
    errors: dict[UUID, list[dict[str, Any]]] = field(default_factory=dict)


def conditions_of(workspace: Workspace, stages: StageTroubles) -> list[Condition]:
    """Of the pipelines of the workspace, except those that are idle and of which there is nothing to say. ``stages`` is
    the same for all workspaces. Raises RedisError."""
    rows = _rows(Pipeline.objects.filter(workspace=workspace))
    letters = letters_by_reason(rows)
    conditions = _conditions(rows, letters, _live(rows, letters), stages)
    return [one for one in conditions if one.letters or one.status.reason != status.NOTHING_FLOWS.reason]


def statuses_of(pipelines: QuerySet[Pipeline]) -> dict[UUID, status.Status]:
    """Without Redis, by what PostgreSQL knows."""
    rows = _rows(pipelines)
    letters = letters_by_reason(rows)
    try:
        conditions = _conditions(rows, letters, _live(rows, letters), stage_troubles())
    except RedisError:
        conditions = _conditions(rows, letters, None, StageTroubles())
    return {condition.pipeline: condition.status for condition in conditions}


def _rows(pipelines: QuerySet[Pipeline]) -> dict[UUID, dict[str, Any]]:
    newest = PipelineVersion.objects.filter(pipeline=OuterRef("pk")).order_by("-number")
    endangered = Registration.objects.filter(pipeline_id=OuterRef("pk")).exclude(warning="").order_by("pk")
    rows: Any = pipelines.annotate(
        newest=Subquery(newest.values("number")[:1]),
        newest_id=Subquery(newest.values("pk")[:1]),
        warnings=ArraySubquery(endangered.values("warning")),
    ).values(
        *("pk", "paused", "failure", "newest", "newest_id", "warnings"),
        *("published__number", "published__breakers", "published__stages"),
    )
    return {row["pk"]: row for row in rows}


def _live(rows: Mapping[UUID, dict[str, Any]], letters: Letters) -> _Live:
    """Raises RedisError."""
    published = [pk for pk, row in rows.items() if row["published__number"] is not None]
    breakers = breakers_not_closed({pk: rows[pk]["published__breakers"] for pk in published})
    minute = int(time.time()) // 60
    with redis_client().pipeline(transaction=False) as batch:
        for pk in published:
            batch.hgetall(keys.by_second(str(pk), minute - 1))
            batch.hgetall(keys.by_second(str(pk), minute))
        for pk in letters:
            ask_errors(batch, str(pk))
        answers = iter(batch.execute())
    return _Live(
        breakers,
        {pk: _traffic(next(answers), next(answers)) for pk in published},
        {pk: [json.loads(entry) for entry in next(answers)] for pk in letters},
    )


def _traffic(*minutes: dict[bytes, bytes]) -> status.Traffic:
    delivered = failed = 0
    for counts in minutes:
        for name, n in counts.items():
            if name.startswith(_LATENCY):
                continue
            event = name.decode().rpartition("|")[0]
            delivered += int(n) * events.is_delivered(event)
            failed += int(n) * events.is_dead(event)
    return status.Traffic(delivered, failed)


def _conditions(
    rows: Mapping[UUID, dict[str, Any]], letters: Letters, live: _Live | None, stages: StageTroubles
) -> list[Condition]:
    drafts = version_failures(row["newest_id"] for row in rows.values() if row["newest"] != row["published__number"])
    provisionings = _provisionings(rows)
    unstored = unstored_files(rows)
    gathered = gathered_messages(rows)
    # Of several parts that fail, the one that has failed longest comes last, and is told.
    failures = InputLease.objects.filter(pipeline__in=rows).exclude(failure="").order_by("-failing_since")
    failing = failures.values_list("pipeline", "failure", "failing_since")
    inputs = {pk: (failure, since) for pk, failure, since in failing}
    known = live or _Live()
    conditions = []
    for pk, row in rows.items():
        input_failure, failing_since = inputs.get(pk, ("", None))
        breakers = known.breakers.get(pk, [])
        needed = row["published__stages"] or []
        facts = status.Facts(
            newest=row["newest"],
            published=row["published__number"],
            traffic=known.traffic.get(pk, status.Traffic(0, 0)) if live else None,
            paused=row["paused"],
            failure=row["failure"],
            draft_failure=drafts.get(row["newest_id"], ""),
            provisioning=provisionings.get(pk),
            warnings=row["warnings"],
            input_failure=input_failure,
            input_failing_since=failing_since,
            breakers=[_breaker(**breaker) for breaker in breakers],
            unstored=unstored.get(pk, []),
            gathered=gathered.get(pk),
            letters=_letters(letters.get(pk, []), known.errors.get(pk, [])),
            stages={stage: stages.failing[stage] for stage in needed if stage in stages.failing},
            starting=[stage for stage in needed if stage in stages.starting],
            unseen=[stage for stage in needed if stage in stages.unseen],
        )
        conditions.append(Condition(pk, status.status_of(facts), letters.get(pk, []), breakers))
    return conditions


def _provisionings(pipeline_ids: Iterable[UUID]) -> dict[UUID, status.Provisioning]:
    newest = (
        Provisioning.objects.filter(pipeline__in=pipeline_ids).order_by("pipeline_id", "-pk").distinct("pipeline_id")
    )
    return {
        one.pipeline_id: status.Provisioning(
            one.version.number, one.state == Provisioning.State.FAILED, one.cause, one.created_at
        )
        for one in newest.select_related("version")
        if one.state != Provisioning.State.ACTIVE
    }


def _breaker(output: str, breaker: dict[str, Any]) -> status.OpenBreaker:
    is_probing = breaker["state"] == BreakerState.HALF_OPEN
    since, until = (datetime.fromisoformat(at) if at else None for at in (breaker["since"], breaker["until"]))
    return status.OpenBreaker(output, is_probing, breaker["cause"], since, until)


def _letters(groups: list[dict[str, Any]], errors: list[dict[str, Any]]) -> status.Letters | None:
    """What an open breaker only held back says nothing of the cause."""
    open_groups = [group for group in groups if group["reason"] != _WAITS_FOR_ITS_TURN]
    if not open_groups:
        return None
    causes = [group["reason"] for group in open_groups if group["reason"] != Reason.BREAKER_OPEN]
    error = next((error["message"] for error in errors if causes and error["reason"] == causes[0]), "")
    count = sum(group["count"] for group in open_groups)
    return status.Letters(count, min(group["oldest"] for group in open_groups), error)
