"""Keeps the desired Spark applications running."""

import json
import logging
from datetime import timedelta

from django.db import transaction
from django.utils import timezone
from psutil import Process
from redis.exceptions import RedisError

from backend.apps.audit.services import audit_record
from backend.apps.jobs import spark
from backend.apps.jobs.models import SparkJob
from backend.apps.workspaces.models import User, Workspace
from backend.network.redis_client import redis_client
from backend.telemetry import keys

log = logging.getLogger(__name__)

_HEARTBEAT_LIMIT = timedelta(seconds=30)
_START_LIMIT = timedelta(minutes=3)
_RUNS_WELL_AFTER = timedelta(minutes=2)
_LONGEST_BACK_OFF = timedelta(minutes=2)


def job_ensure_default() -> SparkJob:
    """The job that runs every stage in one application, created if missing."""
    return SparkJob.objects.get_or_create(name=keys.DEFAULT_JOB)[0]


def job_start(*, job: SparkJob, actor: User, workspace: Workspace) -> None:
    """Sets the desired state to running; the application starts within seconds."""
    with transaction.atomic():
        audit_record(action="job.start", actor=actor, workspace=workspace, target=job)
        SparkJob.objects.filter(pk=job.pk).update(
            desired=SparkJob.Desired.RUNNING, failures=0, next_start_at=None, stop_asked_at=None
        )


def job_stop(*, job: SparkJob, actor: User, workspace: Workspace) -> None:
    """Sets the desired state to stopped; the application drains within seconds."""
    with transaction.atomic():
        audit_record(action="job.stop", actor=actor, workspace=workspace, target=job)
        SparkJob.objects.filter(pk=job.pk).update(desired=SparkJob.Desired.STOPPED)


def jobs_reconcile() -> None:
    """One round: compares the desired state with what runs. Safe to call from several workers."""
    for pk in SparkJob.objects.values_list("pk", flat=True):
        with transaction.atomic():
            job = SparkJob.objects.select_for_update(skip_locked=True).filter(pk=pk).first()
            if job is not None:
                _reconcile(job)
                job.save()


def jobs_halt() -> list[int]:
    """Asks every running application to drain without changing its desired state; returns their process ids."""
    halted = []
    for job in SparkJob.objects.exclude(pid=None):
        process = spark.find(job.pid, job.process_started)
        if process is not None:
            spark.drain(process)
            halted.append(process.pid)
    return halted


def heartbeat(name: str) -> dict[str, object] | None:
    """The application's last heartbeat, or None."""
    try:
        raw = redis_client().get(keys.job_heartbeat(name))
    except RedisError:
        return None
    return json.loads(raw) if raw else None  # type: ignore[arg-type]


def _reconcile(job: SparkJob) -> None:
    process = spark.find(job.pid, job.process_started)
    if process is None and job.pid is not None:
        _record_end(job)
    if job.desired == SparkJob.Desired.RUNNING:
        if process is None:
            _start_when_due(job)
        else:
            _watch(job, process)
    elif process is not None:
        _stop(job, process)
    else:
        job.status = SparkJob.Status.STOPPED


def _record_end(job: SparkJob) -> None:
    assert job.pid is not None
    job.exit_code = spark.exit_code(job.pid)
    # An application that ended while no worker ran has no exit code; its last heartbeat shows how.
    beat = heartbeat(job.name) if job.exit_code is None else None
    stop_requested = job.stop_asked_at is not None or (beat or {}).get("state") == "stopped"
    job.pid = job.process_started = job.stop_asked_at = None
    if stop_requested or job.exit_code == 0:
        job.status = SparkJob.Status.STOPPED
        job.next_start_at = None
        return
    job.failures += 1
    job.status = SparkJob.Status.FAILED
    job.last_error = spark.last_error(job.name)
    back_off = min(timedelta(seconds=2**job.failures), _LONGEST_BACK_OFF)
    # After the first failure following a good run, the restart is immediate.
    job.next_start_at = timezone.now() + (back_off if job.failures > 1 else timedelta())
    log.warning("Job %s ended with exit code %s: %s", job.name, job.exit_code, job.last_error)


def _start_when_due(job: SparkJob) -> None:
    now = timezone.now()
    if job.next_start_at is not None and job.next_start_at > now:
        return
    if job.started_at is not None:
        job.restarts += 1
    process = spark.submit(job=job.name, stages=job.stage_names(), slots=job.slots)
    job.pid, job.process_started = process.pid, process.create_time()
    job.started_at = now
    job.next_start_at = None
    job.status = SparkJob.Status.STARTING
    log.info("Job %s started as process %d.", job.name, process.pid)


def _watch(job: SparkJob, process: Process) -> None:
    now = timezone.now()
    assert job.started_at is not None
    beat = heartbeat(job.name)
    if beat is None or float(beat["at"]) < job.started_at.timestamp():  # type: ignore[arg-type]
        if now - job.started_at > _START_LIMIT:
            _kill(job, process, f"It sent no heartbeat within {_START_LIMIT}.")
        return
    job.status = SparkJob.Status.RUNNING
    if now.timestamp() - float(beat["at"]) > _HEARTBEAT_LIMIT.total_seconds() and _redis_answers():  # type: ignore[arg-type]
        _kill(job, process, f"It sent no heartbeat for {_HEARTBEAT_LIMIT}.")
    elif now - job.started_at > _RUNS_WELL_AFTER:
        job.failures = 0


def _redis_answers() -> bool:
    """Without Redis no heartbeat arrives, which is not the application's fault."""
    try:
        return bool(redis_client().ping())
    except RedisError:
        return False


def _stop(job: SparkJob, process: Process) -> None:
    now = timezone.now()
    job.status = SparkJob.Status.STOPPING
    if job.stop_asked_at is None:
        job.stop_asked_at = now
        spark.drain(process)
    elif now - job.stop_asked_at > timedelta(seconds=spark.drain_limit_seconds()):
        spark.kill(process)


def _kill(job: SparkJob, process: Process, why: str) -> None:
    log.error("Job %s is killed: %s", job.name, why)
    spark.kill(process)
    job.last_error = why
