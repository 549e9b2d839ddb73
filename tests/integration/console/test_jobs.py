"""Supervision of Spark applications: real processes that report themselves to a real Redis and a real manager."""

import asyncio
import json
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.db import connections
from django.utils import timezone

from backend.apps.audit.models import AuditEntry
from backend.apps.exports.models import StagedPart
from backend.apps.jobs import selectors, services, spark, witnesses
from backend.apps.jobs.models import LostMessages, SparkJob
from backend.apps.jobs.selectors import application_problem, application_problems, stage_troubles
from backend.apps.jobs.services import LEASE
from backend.apps.manager import grpc as manager
from backend.apps.pipelines.selectors import stages_needed
from backend.apps.pipelines.services import pipeline_delete, pipeline_pause, pipeline_publish
from backend.manager_api.jobs import JobClient, Loss, manager_answers
from backend.network.redis_client import redis_client
from backend.settings import platform_settings
from backend.telemetry import keys
from spark_jobs.reporting import Reporter
from tests import factories
from tests.infra import REDIS_URL, SERVICE_TOKEN, Server
from tests.integration.conftest import MANAGER_ADDRESS
from tests.waiting import LIMIT_SECONDS, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

HERE, ELSEWHERE = "host-a", "host-b"


class ManagerThread:
    """The manager's gRPC service in a thread of its own."""

    def start(self) -> None:
        self._running = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        self._running.wait(LIMIT_SECONDS)
        wait_until(lambda: manager_answers(platform_settings()))

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._running.set()
        await manager.serve(address=MANAGER_ADDRESS, service_token=SERVICE_TOKEN, redis_url=REDIS_URL, stop=self._stop)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()


@pytest.fixture
def running_manager(redis_server: Server, db: None) -> Iterator[ManagerThread]:
    service = ManagerThread()
    service.start()
    yield service
    service.stop()
    connections.close_all()


@pytest.fixture
def job(running_manager: ManagerThread, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SparkJob]:
    """A job whose applications are processes without Spark."""
    launcher = tmp_path / "bin/spark-submit"
    launcher.parent.mkdir()
    launcher.write_text(f'#!/bin/bash\nexec {sys.executable} -m tests.integration.console.job_driver "$@"\n')
    launcher.chmod(0o755)
    monkeypatch.setattr(spark, "_spark_home", lambda: tmp_path)
    SparkJob.objects.all().delete()
    made = SparkJob.objects.create(name=f"job-{uuid.uuid4()}", stages=["syndicating"])
    yield made
    for process in applications(made):
        spark.kill(process)
    spark._children.clear()


def applications(job: SparkJob) -> list[psutil.Process]:
    """The processes of the job, whoever started them."""
    return [
        process
        for process in psutil.process_iter(["cmdline", "status"])
        if process.info["status"] != psutil.STATUS_ZOMBIE and job.name in (process.info["cmdline"] or ())
    ]


def reconcile(host: str = HERE) -> None:
    services.jobs_reconcile(host=host)


def reconciled(job: SparkJob, condition: Callable[[SparkJob], object], host: str = HERE) -> SparkJob:
    """The job once rounds of supervision have brought the condition about."""

    def holds() -> object:
        reconcile(host)
        job.refresh_from_db()
        return condition(job)

    wait_until(holds)
    return job


def is_running(job: SparkJob) -> bool:
    return job.status == SparkJob.Status.RUNNING


def started_long_ago(job: SparkJob) -> None:
    SparkJob.objects.filter(pk=job.pk).update(started_at=timezone.now() - timedelta(hours=1))


def let_leases_expire(job: SparkJob) -> None:
    SparkJob.objects.filter(pk=job.pk).update(lease_until=timezone.now() - timedelta(seconds=1))


def test_a_worker_that_ends_drains_its_application_and_the_next_starts_it_at_once(job: SparkJob) -> None:
    reconciled(job, is_running)
    [application] = applications(job)
    services.jobs_release(host=HERE)
    assert not application.is_running()
    job.refresh_from_db()
    assert (job.status, job.exit_code, job.host, job.holder) == (SparkJob.Status.STOPPED, 0, "", "")
    reconcile(ELSEWHERE)
    job.refresh_from_db()
    assert (job.host, job.token) == (ELSEWHERE, 2)
    wait_until(lambda: len(applications(job)) == 1)  # a process has no command line while it becomes another program


# -- witnesses -------------------------------------------------------------------


def test_neighbours_5_a_flushed_redis_kills_no_healthy_application(job: SparkJob) -> None:
    reconciled(job, is_running)
    started_long_ago(job)
    [application] = applications(job)
    for _ in range(20):
        redis_client().flushall()
        reconcile()
    assert application.is_running()
    assert applications(job) == [application]


@pytest.mark.parametrize("fault", ["no-redis", "no-manager"])
def test_neighbours_5_one_witness_is_enough(job: SparkJob, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    monkeypatch.setenv("JOB_DRIVER_FAULTS", fault)
    monkeypatch.setattr(services, "_SILENCE_LIMIT", timedelta())
    reconciled(job, is_running)
    started_long_ago(job)
    [application] = applications(job)
    for _ in range(10):
        reconcile()
    assert application.is_running()
    assert application_problem(job.name) == ""


def test_a_hung_application_is_replaced_once_every_witness_has_been_silent(
    job: SparkJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "_SILENCE_LIMIT", timedelta(seconds=1))
    monkeypatch.setattr(witnesses, "FRESH_SECONDS", 1.0)
    reconciled(job, is_running)
    [hung] = applications(job)
    hung.suspend()
    reconciled(job, lambda job: is_running(job) and job.token == 2)
    assert not hung.is_running()
    assert len(applications(job)) == 1
    assert "No heartbeat" in job.last_error


def test_each_start_that_failed_gives_the_next_one_more_time(job: SparkJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOB_DRIVER_FAULTS", "no-redis no-manager")
    reconcile()
    wait_until(lambda: applications(job))  # its launcher becomes the application
    [slow] = applications(job)

    def silent_for(minutes: int) -> None:
        since = timezone.now() - timedelta(minutes=minutes)
        SparkJob.objects.filter(pk=job.pk).update(silent_since=since, failures=1)
        reconcile()

    silent_for(minutes=15)
    assert slow.is_running()
    silent_for(minutes=21)
    assert not slow.is_running()


def test_a_job_that_has_failed_for_days_is_still_started(job: SparkJob) -> None:
    reconciled(job, is_running)
    SparkJob.objects.filter(pk=job.pk).update(failures=5_000)
    [failing] = applications(job)
    failing.kill()
    reconciled(job, lambda job: job.status == SparkJob.Status.FAILED)
    assert job.next_start_at is not None
    SparkJob.objects.filter(pk=job.pk).update(next_start_at=timezone.now())
    reconciled(job, is_running)


def test_silence_counts_only_while_a_witness_can_be_asked(
    job: SparkJob, running_manager: ManagerThread, redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "_SILENCE_LIMIT", timedelta())
    monkeypatch.setattr(witnesses, "FRESH_SECONDS", 1.0)
    reconciled(job, is_running)
    [application] = applications(job)
    running_manager.stop()
    redis_server.stop(signal.SIGKILL)
    try:
        wait_until(lambda: not witnesses.reported_recently(job))
        for _ in range(3):
            reconcile()
        job.refresh_from_db()
        assert job.silent_since is None
        assert application.is_running()
    finally:
        redis_server.start()
        running_manager.start()
    monkeypatch.undo()
    reconciled(job, is_running)
    assert applications(job) == [application]


# -- lease and fencing token -----------------------------------------------------


def test_what_a_killed_application_has_left_is_removed(job: SparkJob) -> None:
    reconciled(job, is_running)
    left = spark.scratch_folder(job.name) / "left"
    left.touch()
    [killed] = applications(job)
    spark.kill(killed)
    reconciled(job, lambda job: is_running(job) and job.token == 2)
    assert left.parent.is_dir()
    assert not left.exists()


def test_two_hosts_start_one_application(job: SparkJob) -> None:
    barrier = threading.Barrier(2)

    def supervise(host: str) -> None:
        barrier.wait()
        for _ in range(5):
            reconcile(host)
        connections.close_all()

    workers = [threading.Thread(target=supervise, args=(host,)) for host in (HERE, ELSEWHERE)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    job.refresh_from_db()
    assert job.token == 1
    assert len(applications(job)) == 1
    assert job.host == job.holder


def test_another_host_takes_over_a_living_application_and_can_stop_it(job: SparkJob) -> None:
    reconciled(job, is_running)
    let_leases_expire(job)
    reconciled(job, lambda job: job.holder == ELSEWHERE and is_running(job), ELSEWHERE)
    assert len(applications(job)) == 1
    SparkJob.objects.filter(pk=job.pk).update(desired=SparkJob.Desired.STOPPED)
    wait_until(lambda: not applications(job))


def test_an_application_drains_once_a_later_one_was_started(job: SparkJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "_SILENCE_LIMIT", timedelta(seconds=1))
    monkeypatch.setattr(witnesses, "FRESH_SECONDS", 1.0)
    reconciled(job, is_running)
    [former] = applications(job)
    former.suspend()  # as when its host is cut off
    let_leases_expire(job)
    reconciled(job, lambda job: is_running(job) and job.host == ELSEWHERE, ELSEWHERE)
    assert job.token == 2
    former.resume()
    wait_until(lambda: applications(job) == [psutil.Process(job.pid)])


def test_an_application_whose_start_was_never_recorded_is_found(job: SparkJob, monkeypatch: pytest.MonkeyPatch) -> None:
    submit = spark.submit

    def submit_and_die(**options: Any) -> Any:
        submit(**options)
        raise RuntimeError("The worker was killed.")

    monkeypatch.setattr(spark, "submit", submit_and_die)
    with pytest.raises(RuntimeError):
        reconcile()
    monkeypatch.setattr(spark, "submit", submit)
    wait_until(lambda: len(applications(job)) == 1)
    [orphan] = applications(job)
    reconciled(job, is_running)
    assert applications(job) == [orphan]
    assert job.pid == orphan.pid


# -- reports ---------------------------------------------------------------------


def test_messages_that_were_lost_are_recorded_once(job: SparkJob) -> None:
    loss = Loss("syndicating", 1, 500, 40)
    for _ in range(2):
        assert services.job_report(name=job.name, token=job.token, losses=[loss])
    assert LostMessages.objects.filter(job=job).values_list("count", flat=True).get() == 40


def test_the_manager_says_which_stages_are_needed(job: SparkJob) -> None:
    client = JobClient(platform_settings(), job.name, job.token)
    workspace = factories.make_workspace()
    actor = factories.admin_of(workspace)
    indexing = factories.make_pipeline(workspace, index=[{"name": "country", "path": "country"}])
    assert "filtering" not in demands(client)
    pipeline_publish(pipeline=indexing, actor=actor)
    assert demands(client) == dict.fromkeys(("adapting", "filtering", "syndicating"), "pipelines")
    plain = factories.make_pipeline(workspace)
    pipeline_publish(pipeline=plain, actor=actor)
    assert stages_needed() == {"adapting": 2, "filtering": 1, "syndicating": 2}
    pipeline_pause(pipeline=indexing, actor=actor)  # what it has accepted is still handled
    assert "filtering" in demands(client)
    pipeline_delete(pipeline=indexing, actor=actor)
    assert demands(client) == dict.fromkeys(("adapting", "syndicating"), "pipelines")
    client.close()


def test_staged_messages_need_the_stage_that_stores_their_files(job: SparkJob) -> None:
    client = JobClient(platform_settings(), job.name, job.token)
    staged = {"workspace_id": uuid.uuid4(), "pipeline_id": uuid.uuid4(), "output": "files", "version": 1}
    StagedPart.objects.create(**staged, path="part", rows=1, bytes=2)
    assert demands(client) == {"exporter": "files"}
    StagedPart.objects.all().delete()
    assert demands(client) == {}
    client.close()


def test_the_last_answer_counts_while_the_manager_is_unavailable(job: SparkJob, running_manager: ManagerThread) -> None:
    settings = platform_settings()
    reporter = Reporter(settings, job=job.name, token=job.token, application_id="local", drain=lambda: None)
    assert reporter.demands is None
    workspace = factories.make_workspace()
    pipeline_publish(pipeline=factories.make_pipeline(workspace), actor=factories.admin_of(workspace))
    reporter.send("running", {})
    answered = dict.fromkeys(("adapting", "syndicating"), "pipelines")
    wait_until(lambda: reporter.demands == answered or reporter.send("running", {}))
    running_manager.stop()
    try:
        reporter.send("running", {})
        assert reporter.demands == answered
    finally:
        running_manager.start()


def demands(client: JobClient) -> dict[str, str]:
    found = client.report().demands
    assert found is not None
    return dict(found)


def test_a_stopped_job_is_named_as_stopped(job: SparkJob) -> None:
    SparkJob.objects.filter(pk=job.pk).update(desired=SparkJob.Desired.STOPPED)
    assert "is stopped" in application_problem(job.name)


def test_neighbours_5_health_names_every_job_that_is_to_run(job: SparkJob, redis_server: Server) -> None:
    for name, desired in (("second", SparkJob.Desired.RUNNING), ("third", SparkJob.Desired.STOPPED)):
        SparkJob.objects.create(name=name, token=1, desired=desired)
    beat = {"state": "running", "token": 1, "problem": "collections[0] makes no progress."}
    client = redis_client()
    try:
        client.set(keys.job_heartbeat("second"), json.dumps(beat), ex=keys.HEARTBEAT_KEPT_SECONDS)
        assert "collections[0] makes no progress." in application_problems()
        client.set(keys.job_heartbeat("second"), json.dumps(beat | {"problem": ""}), ex=keys.HEARTBEAT_KEPT_SECONDS)
        assert "collections" not in application_problems()
        assert "third" not in application_problems()
    finally:
        client.delete(keys.job_heartbeat("second"))


def beat_of(job: SparkJob, **fields: Any) -> None:
    beat = {"state": "running", "token": job.token, "problem": "", "stages": {}} | fields
    redis_client().set(keys.job_heartbeat(job.name), json.dumps(beat), ex=keys.HEARTBEAT_KEPT_SECONDS)


def test_a_stage_does_not_work_unless_some_application_runs_it(job: SparkJob) -> None:
    SparkJob.objects.filter(pk=job.pk).update(desired=SparkJob.Desired.STOPPED)
    assert "is stopped" in stage_troubles().failing["syndicating"]
    second = SparkJob.objects.create(name="second", token=1)
    states = {"syndicating": {"state": "running"}, "exporter": {"state": "resting"}, "adapting": {"state": "failing"}}
    try:
        beat_of(second, stages=states)
        troubles = stage_troubles()
    finally:
        redis_client().delete(keys.job_heartbeat("second"))
    assert not {"syndicating", "exporter"} & (troubles.failing.keys() | troubles.starting)
    assert "adapting" in troubles.failing


def test_a_stage_is_unseen_until_the_first_round_after_the_start(
    job: SparkJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selectors, "_BEGAN", time.monotonic() - 5)
    jobs = SparkJob.objects.filter(pk=job.pk)
    for looked_before in (None, timedelta(seconds=20), timedelta(minutes=5)):
        lease = looked_before and timezone.now() - looked_before + LEASE
        jobs.update(status=SparkJob.Status.RUNNING, lease_until=lease)
        troubles = stage_troubles()
        assert ("syndicating" in troubles.unseen, troubles.failing) == (True, {}), looked_before
    jobs.update(desired=SparkJob.Desired.STOPPED)
    assert "is stopped" in stage_troubles().failing["syndicating"]
    jobs.update(desired=SparkJob.Desired.RUNNING, lease_until=timezone.now() - timedelta(seconds=1) + LEASE)
    troubles = stage_troubles()  # a worker has looked, and found it silent
    assert (troubles.unseen, "No Spark application" in troubles.failing["syndicating"]) == (frozenset(), True)
    jobs.update(lease_until=None)
    monkeypatch.setattr(selectors, "_BEGAN", -1e6)
    assert "No Spark application" in stage_troubles().failing["syndicating"]  # no worker has come


def test_a_stage_starts_while_its_application_does(job: SparkJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selectors, "_BEGAN", -1e6)
    assert "No Spark application" in stage_troubles().failing["syndicating"]  # nobody starts it
    lease = timezone.now() + timedelta(seconds=30)
    SparkJob.objects.filter(pk=job.pk).update(status=SparkJob.Status.STARTING, lease_until=lease)
    assert "syndicating" in stage_troubles().starting
    assert "syndicating" not in stage_troubles().failing
    for state, is_starting in (
        ("starting", True),
        ("running", False),
        ("stopping", True),
        ("waiting for Kafka", False),
    ):
        beat_of(job, state=state, stages={"syndicating": {"state": "running"}})
        assert ("syndicating" in stage_troubles().starting) is is_starting, state
    assert "waiting for Kafka" in stage_troubles().failing["syndicating"]
    redis_client().delete(keys.job_heartbeat(job.name))
    SparkJob.objects.filter(pk=job.pk).update(status=SparkJob.Status.FAILED, failures=1)
    assert "syndicating" in stage_troubles().failing


def test_each_heartbeat_is_read_once(job: SparkJob, monkeypatch: pytest.MonkeyPatch) -> None:
    SparkJob.objects.create(name="second", token=1)
    read: list[str] = []
    monkeypatch.setattr(selectors, "heartbeat", read.append)
    stage_troubles()
    assert sorted(read) == sorted([job.name, "second"])


def test_supervision_does_not_wait_for_a_hung_redis(job: SparkJob, redis_server: Server) -> None:
    reconciled(job, is_running)
    [application] = applications(job)
    assert redis_server.process is not None
    os.kill(redis_server.process.pid, signal.SIGSTOP)
    try:
        began = timezone.now()
        for _ in range(2):
            reconcile()
        assert timezone.now() - began < timedelta(seconds=10)
        assert application.is_running()
        application.kill()
        reconciled(job, lambda job: job.token == 2 and is_running(job))  # the manager is the witness
    finally:
        os.kill(redis_server.process.pid, signal.SIGCONT)


def test_an_application_is_started_again_with_other_resources(job: SparkJob) -> None:
    reconciled(job, is_running)
    [former] = applications(job)
    services.job_change(job=job, actor=factories.make_user(), resources={"driver_memory": 768})

    def has_successor() -> bool:
        reconcile()
        return [process.pid for process in applications(job)] not in ([former.pid], [])

    wait_until(has_successor)
    [successor] = applications(job)
    assert "768m" in successor.cmdline()
    [change] = AuditEntry.objects.get(object_name=job.name).changes
    assert (change["path"], change["before"], change["after"]) == ("driver_memory", 512, 768)


def test_a_report_of_the_former_application_says_nothing_about_its_successor(
    job: SparkJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    reconciled(job, lambda job: is_running(job) and witnesses.reported_recently(job))
    monkeypatch.setenv("JOB_DRIVER_FAULTS", "no-redis no-manager")
    [application] = applications(job)
    application.kill()
    reconciled(job, lambda job: job.token == 2 and job.pid is not None)
    reconcile()
    job.refresh_from_db()
    assert job.status == SparkJob.Status.STARTING
