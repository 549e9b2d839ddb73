"""Keeps the desired Spark applications running.

A worker supervises a job while it holds the job's lease in PostgreSQL. An application is started in two
transactions: the first counts the fencing token up, the second starts the process with it. A worker that dies in
between leaves a token by which its successor finds the process, or starts it.
"""

import logging
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone
from psutil import Process, wait_procs
from redis.exceptions import RedisError

from backend.apps.audit.services import audit_record
from backend.apps.jobs import spark, witnesses
from backend.apps.jobs.models import LostMessages, SparkJob
from backend.apps.workspaces.models import User
from backend.domain.stages import Application
from backend.manager_api.jobs import Loss
from backend.telemetry import keys

log = logging.getLogger(__name__)

LEASE = timedelta(seconds=30)
"""From each round of supervision on."""
_SILENCE_LIMIT = timedelta(seconds=30)
_START_LIMIT = timedelta(minutes=10)
_LONGEST_START_LIMIT = timedelta(minutes=40)
_RUNS_WELL_AFTER = timedelta(minutes=2)
_LONGEST_BACK_OFF = timedelta(minutes=2)
_MOST_DOUBLINGS = 20
"""More are too long for a duration."""

_OBSERVED = [
    *("status", "token", "host", "pid", "process_started", "started_at", "stop_requested_at"),
    *("silent_since", "problem", "failures", "restarts", "next_start_at", "exit_code", "last_error", "started_with"),
]
"""The fields that supervision writes; users and the application itself write the others meanwhile."""


def job_ensure_default() -> SparkJob:
    """The job that runs every stage in one application, created if missing."""
    return SparkJob.objects.get_or_create(name=keys.DEFAULT_JOB)[0]


def job_demand(*, application: Application, wanted: bool) -> None:
    """Lets the job of an application that runs on demand run, or stop."""
    desired = SparkJob.Desired.RUNNING if wanted else SparkJob.Desired.STOPPED
    job, created = SparkJob.objects.get_or_create(name=application, defaults={"desired": desired})
    if not created and job.desired != desired:
        SparkJob.objects.filter(pk=job.pk).update(
            desired=desired, failures=0, next_start_at=None, stop_requested_at=None
        )


def job_start(*, job: SparkJob, actor: User) -> None:
    """Sets the desired state to running; the application starts within seconds."""
    with transaction.atomic():
        audit_record(action="job.start", actor=actor, workspace=None, target=job)
        SparkJob.objects.filter(pk=job.pk).update(
            desired=SparkJob.Desired.RUNNING, failures=0, next_start_at=None, stop_requested_at=None
        )


def job_stop(*, job: SparkJob, actor: User) -> None:
    """Sets the desired state to stopped; the application drains within seconds."""
    with transaction.atomic():
        audit_record(action="job.stop", actor=actor, workspace=None, target=job)
        SparkJob.objects.filter(pk=job.pk).update(desired=SparkJob.Desired.STOPPED)


def job_change(*, job: SparkJob, actor: User, resources: dict[str, Any]) -> None:
    """Gives the job other resources; an application that runs drains and is started again with them."""
    with transaction.atomic():
        before, after = job.resources(), job.resources() | resources
        audit_record(action="job.change", actor=actor, workspace=None, target=job, before=before, after=after)
        SparkJob.objects.filter(pk=job.pk).update(**resources)


def job_report(*, name: str, token: int, losses: Iterable[Loss] = ()) -> bool:
    """The application with this token is alive; returns whether it may go on. Losses are recorded once each."""
    job = SparkJob.objects.filter(name=name).first()
    if job is None:
        return True  # started by hand, and supervised by nobody
    if job.token > token:
        return False
    lost = [
        LostMessages(
            job=job, stage=loss.stage, partition=loss.partition, first_offset=loss.first_offset, count=loss.count
        )
        for loss in losses
    ]
    LostMessages.objects.bulk_create(lost, ignore_conflicts=True)
    SparkJob.objects.filter(pk=job.pk, token=token).update(reported_at=Now())
    return job.desired == SparkJob.Desired.RUNNING and not job.is_outdated()


def jobs_reconcile(*, host: str) -> None:
    """One round of the worker on ``host``: compares the desired state with what runs. Safe to call from several
    workers on several hosts."""
    for pk in SparkJob.objects.values_list("pk", flat=True):
        for step in (_reconcile, _launch):
            _supervise(pk, host, step)


def jobs_release(*, host: str) -> None:
    """The worker on ``host`` ends, and its container with it: drains its applications, and leaves them to the next
    worker, which starts them at once."""
    jobs = list(SparkJob.objects.filter(host=host))
    running = [process for job in jobs if (process := spark.find(job.pid, job.process_started))]
    for process in running:
        spark.drain(process)
    for process in wait_procs(running, spark.drain_limit_seconds())[1]:
        spark.kill(process)
    for job in jobs:
        _supervise(job.pk, host, _release)
    SparkJob.objects.filter(holder=host).update(holder="", lease_until=None)


def _release(job: SparkJob, host: str) -> None:
    if job.host == host:
        _record_end(job, None if job.pid is None else spark.exit_code(job.pid))


def _supervise(pk: int, host: str, step: Callable[[SparkJob, str], None]) -> None:
    """Takes or extends the lease and makes the step, unless another host holds the lease."""
    free = Q(holder=host) | Q(lease_until=None) | Q(lease_until__lt=Now())
    with transaction.atomic():
        job = SparkJob.objects.select_for_update(skip_locked=True).filter(free, pk=pk).first()
        if job is not None:
            if job.holder != host:
                job.silent_since = None  # how long the previous holder has watched is unknown
            SparkJob.objects.filter(pk=pk).update(holder=host, lease_until=Now() + LEASE)
            step(job, host)
            job.save(update_fields=_OBSERVED)


def heartbeat(name: str) -> dict[str, Any] | None:
    """The application's last heartbeat and its ``age`` in seconds, or None."""
    try:
        return witnesses.heartbeat_read(name)
    except RedisError:
        return None


def _reconcile(job: SparkJob, host: str) -> None:
    process = spark.find(job.pid, job.process_started) if job.host == host else None
    if process is None and job.pid is not None and job.host == host:
        _record_end(job, spark.exit_code(job.pid))
    if not job.host:
        if job.desired == SparkJob.Desired.RUNNING:
            _plan_start_when_due(job, host)
        else:
            job.status = SparkJob.Status.STOPPED
    elif job.desired == SparkJob.Desired.RUNNING and not job.is_outdated():
        _watch(job, process)
    else:
        _stop(job, process)


def _record_end(job: SparkJob, exit_code: int | None) -> None:
    job.exit_code = exit_code
    # An application that ended while no worker ran has no exit code; its last heartbeat shows how.
    beat = (heartbeat(job.name) or {}) if exit_code is None else {}
    drained = beat.get("state") == "stopped" and beat.get("token", 0) == job.token
    stop_requested = job.stop_requested_at is not None or drained
    job.host, job.problem = "", ""
    job.pid = job.process_started = job.stop_requested_at = job.silent_since = None
    if stop_requested or job.exit_code == 0:
        job.status = SparkJob.Status.STOPPED
        job.next_start_at = None
        return
    job.failures += 1
    job.status = SparkJob.Status.FAILED
    job.last_error = spark.last_error(job.name)
    back_off = _doubled(timedelta(seconds=1), job.failures, _LONGEST_BACK_OFF)
    # After the first failure following a good run, the restart is immediate.
    job.next_start_at = timezone.now() + (back_off if job.failures > 1 else timedelta())
    log.warning("Job %s ended with exit code %s: %s", job.name, job.exit_code, job.last_error)


def _plan_start_when_due(job: SparkJob, host: str) -> None:
    now = timezone.now()
    if job.next_start_at is not None and job.next_start_at > now:
        return
    if job.started_at is not None:
        job.restarts += 1
    # A report of the former application, a few seconds old, would end the time that this one has to start.
    SparkJob.objects.filter(pk=job.pk).update(reported_at=None)
    job.token += 1
    job.host = host
    job.started_with = job.resources()
    job.started_at = now
    job.silent_since = job.next_start_at = None
    job.status = SparkJob.Status.STARTING


def _launch(job: SparkJob, host: str) -> None:
    """Starts the application that was planned for this host, unless a worker that died has already started it."""
    if job.host != host or job.pid is not None or job.desired == SparkJob.Desired.STOPPED:
        return
    process = spark.find_unrecorded(job.name, job.token) or spark.submit(
        job=job.name, token=job.token, stages=job.stage_names(), resources=job.resources()
    )
    job.pid, job.process_started = process.pid, process.create_time()
    log.info("Job %s started as process %d.", job.name, process.pid)


def _watch(job: SparkJob, process: Process | None) -> None:
    """``process`` is None when the application runs on another host."""
    assert job.started_at is not None
    sighting = witnesses.look(job)
    if sighting.alive:
        job.status, job.silent_since = SparkJob.Status.RUNNING, None
        if sighting.heartbeat is not None:
            job.problem = sighting.heartbeat.get("problem", "")
        if timezone.now() - job.started_at > _RUNS_WELL_AFTER:
            job.failures = 0
        return
    limit = _start_limit(job) if job.status == SparkJob.Status.STARTING else _SILENCE_LIMIT
    if _silence(job, sighting) > limit:
        _end_application(job, process, f"No heartbeat for {limit}.")


def _start_limit(job: SparkJob) -> timedelta:
    """Twice as long after each start that failed: on a machine that is too busy, an application that is ended for its
    slow start would be started for ever."""
    return _doubled(_START_LIMIT, job.failures, _LONGEST_START_LIMIT)


def _doubled(first: timedelta, times: int, longest: timedelta) -> timedelta:
    return min(first * (1 << min(times, _MOST_DOUBLINGS)), longest)


def _silence(job: SparkJob, sighting: witnesses.Sighting) -> timedelta:
    """How long witnesses have been asked without a sign of life."""
    if sighting.alive is not False:
        job.silent_since = None
        return timedelta()
    job.silent_since = job.silent_since or timezone.now()
    return timezone.now() - job.silent_since


def _stop(job: SparkJob, process: Process | None) -> None:
    now = timezone.now()
    job.status = SparkJob.Status.STOPPING
    if job.stop_requested_at is None:
        job.stop_requested_at = now
        if process is not None:
            spark.drain(process)
    elif process is None:
        # The manager's answer to its reports makes it drain. Once it has, it is silent.
        if job.pid is None or _silence(job, witnesses.look(job)) > _SILENCE_LIMIT:
            _record_end(job, None)
    elif now - job.stop_requested_at > timedelta(seconds=spark.drain_limit_seconds()):
        spark.kill(process)


def _end_application(job: SparkJob, process: Process | None, why: str) -> None:
    """Its successor has a higher fencing token, so one on another host drains if it ever goes on."""
    log.error("Job %s is ended: %s", job.name, why)
    if process is not None:
        spark.kill(process)
    _record_end(job, spark.exit_code(process.pid) if process is not None else None)
    job.last_error = why
