"""Queries on jobs."""

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import OperationalError
from django.db.models import BooleanField, ExpressionWrapper, Q
from django.db.models.expressions import Combinable
from django.db.models.functions import Now

from backend.apps.exports.selectors import is_anything_to_store
from backend.apps.jobs import spark
from backend.apps.jobs.models import SparkJob
from backend.apps.jobs.services import LEASE, heartbeat
from backend.apps.jobs.witnesses import FRESH_SECONDS, reported_recently
from backend.apps.pipelines.selectors import stages_needed
from backend.domain.demand import Demand, StageState
from backend.domain.stages import ADAPTING, EXPORTER
from backend.telemetry import keys

_BATCH_END_SECONDS = 10.0
"""The most time between the end of a batch and the report of it to the console."""
_BEGAN = time.monotonic()
_FIRST_ROUND_SECONDS = 120.0
"""The most time between the start of this process and the first round of a worker that is started along with it."""
_PROBLEMS: dict[str, str] = {
    StageState.WAITING: "There are too few task slots for it.",
    StageState.FAILING: "A part of it does not run, or makes no progress.",
    StageState.STOPPED: "Its application does not run.",
}
_IS_SUPERVISED = ExpressionWrapper(Q(lease_until__gt=Now()), output_field=BooleanField())
"""Whether a worker sees to it that the application runs."""


def application_problems() -> str:
    """What is wrong with the applications that are to run, and with the default one in any case; empty when all run
    well. While PostgreSQL is unavailable the others are not known. Raises OperationalError."""
    names = {keys.DEFAULT_JOB}
    with contextlib.suppress(OperationalError):
        names |= set(SparkJob.objects.filter(desired=SparkJob.Desired.RUNNING).values_list("name", flat=True))
    return " ".join(filter(None, map(application_problem, sorted(names))))


def application_problem(name: str) -> str:
    """What is wrong with the job's application, as a sentence; empty when it runs well. Redis is asked first; the
    database only while Redis shows nothing. Raises OperationalError."""
    beat = _fresh_heartbeat(name)
    if beat is not None:
        return _reported_problem(beat)
    job = SparkJob.objects.filter(name=name).first()
    if job is None:
        return "There is no Spark application; messages wait in Kafka."
    return _unreported_problem(job)


def _fresh_heartbeat(name: str) -> dict[str, Any] | None:
    beat = heartbeat(name)
    return beat if beat is not None and beat["age"] < FRESH_SECONDS else None


def _reported_problem(beat: dict[str, Any]) -> str:
    if beat["state"] == "running":
        return str(beat.get("problem", ""))
    return f"The Spark application is {beat['state']}; messages wait in Kafka."


def _unreported_problem(job: SparkJob) -> str:
    """Of one that Redis knows nothing of."""
    if job.desired == SparkJob.Desired.STOPPED:
        return f"The Spark application {job.name} is stopped; messages wait in Kafka until it is started."
    if reported_recently(job):
        return job.problem
    return "No Spark application sends heartbeats; messages wait in Kafka."


@dataclass(frozen=True)
class StageTroubles:
    """The stages that work in no application."""

    failing: Mapping[str, str] = field(default_factory=dict)
    """By their names, why."""
    starting: frozenset[str] = frozenset()
    """Those that begin to work, since an application of theirs starts."""
    unseen: frozenset[str] = frozenset()
    """Those of which nothing is known, since no worker has looked after their applications since this process began."""


def stage_troubles() -> StageTroubles:
    """Stages that work in any application, or rest because nothing needs them, are left out. Raises
    OperationalError."""
    problems: dict[str, str] = {}
    starting: set[str] = set()
    unseen: set[str] = set()
    work: set[str] = set()
    age = time.monotonic() - _BEGAN
    for job in SparkJob.objects.annotate(is_supervised=_IS_SUPERVISED, was_seen=_was_seen_within(age)):
        beat = _fresh_heartbeat(job.name)
        if beat is None and not job.was_seen and age < _FIRST_ROUND_SECONDS and job.is_expected():
            unseen.update(job.stage_names())
            continue
        if _is_starting(job, beat, is_supervised=job.is_supervised):
            starting.update(job.stage_names())
            continue
        found = _problems_of(job, beat)
        problems |= {name: problem for name, problem in found.items() if problem}
        work |= {name for name, problem in found.items() if not problem}
    starting -= work
    unseen -= work | starting
    failing = {name: problem for name, problem in problems.items() if name not in work | starting | unseen}
    return StageTroubles(failing, frozenset(starting), frozenset(unseen))


def _was_seen_within(seconds: float) -> Combinable:
    """Whether a worker's round was that short a time ago: what was recorded before is of processes that may be gone."""
    in_time = Q(lease_until__isnull=False, lease_until__gt=Now() + LEASE - timedelta(seconds=seconds))
    return ExpressionWrapper(in_time, output_field=BooleanField())


def _is_starting(job: SparkJob, beat: dict[str, Any] | None, *, is_supervised: bool) -> bool:
    """What no worker sees to is not started, whatever was recorded of it."""
    if beat is None:
        return is_supervised and job.is_starting(None)
    return job.is_starting(beat["state"])


def _problems_of(job: SparkJob, beat: dict[str, Any] | None) -> dict[str, str]:
    """What is wrong with each stage of a job; empty when it works or rests."""
    if beat is None:
        return dict.fromkeys(job.stage_names(), _unreported_problem(job))
    if beat["state"] == "running":
        return {name: _PROBLEMS.get(stage["state"], "") for name, stage in beat.get("stages", {}).items()}
    return dict.fromkeys(job.stage_names(), _reported_problem(beat))


def stage_demands() -> dict[str, Demand]:
    """Why stages are needed, whatever runs; those that nothing in the database needs are left out."""
    demands = dict.fromkeys(stages_needed(), Demand.PIPELINES)
    if is_anything_to_store():
        demands.setdefault(EXPORTER.name, Demand.FILES)
    return demands


def job_stages(job: SparkJob) -> list[dict[str, Any]]:
    """What each stage does and why, by the application's last heartbeat."""
    beat: dict[str, Any] = (heartbeat(job.name) or {}) if job.status == SparkJob.Status.RUNNING else {}
    stopped = {"state": StageState.STOPPED, "demand": Demand.UNKNOWN, "slots": 0}
    return [{"name": name, **stopped, **beat.get("stages", {}).get(name, {})} for name in job.stage_names()]


@dataclass(frozen=True)
class AdaptingProgress:
    """The position of the adapting query at the end of its last batch, which is when it reports."""

    offsets: dict[int, int]
    behind: int | None
    ended_at: float

    def lag(self, ends: dict[int, int]) -> int:
        """The lag, given the current end offsets. While another batch may be running, the lag at the end of the last
        one, since its progress is unknown; once it should have ended, all messages since the last batch."""
        under_way = time.time() - self.ended_at < settings.CONSOLE.adapting_batch_seconds + _BATCH_END_SECONDS
        if under_way and self.behind is not None:
            return self.behind
        return sum(max(0, end - self.offsets.get(partition, 0)) for partition, end in ends.items())


def adapting_progress() -> AdaptingProgress | None:
    """None before the query has ended its first batch."""
    for job in SparkJob.objects.all():
        if ADAPTING.name not in job.stage_names():
            continue
        beat: dict[str, Any] = heartbeat(job.name) or {}
        stage = beat.get("stages", {}).get(ADAPTING.name, {})
        if "ended_at" in stage:
            offsets = {int(partition): int(offset) for partition, offset in stage["offsets"].items()}
            return AdaptingProgress(offsets, stage["behind"], stage["ended_at"])
    return None


def job_log(job: SparkJob, lines: int) -> list[str]:
    return spark.log_tail(job.name, lines)
