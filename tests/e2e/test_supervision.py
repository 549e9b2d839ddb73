"""What keeps the data plane running, and what says that it does not."""

import re
import signal
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil
import pytest
import redis
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from backend.domain import routing
from tests.chaos.faults import process_named
from tests.e2e.test_messages import ids, name, order
from tests.installation import Installation
from tests.ports import free_offset
from tests.receiver import Receiver
from tests.waiting import LIMIT_SECONDS, SPARK_SECONDS, wait_until

JOB = "data-plane"


def job(installation: Installation) -> dict[str, object]:
    return next(one for one in installation.api("GET", "jobs/")[1] if one["name"] == JOB)


@pytest.fixture
def job_that_runs_afterwards(installation: Installation) -> Iterator[None]:
    """If a test fails while the job is stopped, the following do not fail for that."""
    yield
    if job(installation)["status"] == "stopped":
        installation.set_job("start")


def test_neighbours_5_hung_lane_workers_are_seen_and_replaced_within_a_minute(
    installation: Installation, inbox: Receiver
) -> None:
    pipeline = installation.publish_pipeline(name(), inbox.url)
    wait_until(lambda: installation.post(pipeline, order(0))[0] == 202)
    wait_until(lambda: len(inbox.bodies) == 1)
    driver = installation.spark()
    hung = installation.lane_workers()
    for worker in hung:
        worker.send_signal(signal.SIGSTOP)
    sent = installation.accepted(pipeline, map(order, range(20)))
    wait_until(lambda: re.search("(is|was) hung", installation.components()["spark"]))
    wait_until(lambda: re.search("(is|was) hung", str(job(installation)["problem"])))
    wait_until(lambda: set(sent) <= set(ids(inbox)))
    wait_until(lambda: installation.components()["spark"] == "ok")
    assert installation.spark() == driver
    assert not any(worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE for worker in hung)


def test_no_number_of_lost_workers_ends_the_application(installation: Installation, inbox: Receiver) -> None:
    pipeline = installation.publish_pipeline(name(), inbox.url)
    wait_until(lambda: installation.post(pipeline, order(0))[0] == 202)
    driver = installation.spark()
    for n in range(5):
        for worker in installation.lane_workers():
            with suppress(psutil.NoSuchProcess):
                worker.kill()
        sent = installation.accepted(pipeline, map(order, range(n, n + 3)))
        wait_until(lambda sent=sent: set(sent) <= set(ids(inbox)), SPARK_SECONDS)  # type: ignore[misc]
    assert installation.spark() == driver


def test_a_killed_worker_takes_its_scheduler_along(installation: Installation) -> None:
    """One that went on would schedule every task a second time."""
    worker = process_named(installation, "worker")
    [scheduler] = [process for process in worker.children() if "celery" in process.cmdline()]
    worker.kill()
    scheduler.wait(LIMIT_SECONDS)
    wait_until(lambda: process_named(installation, "worker").is_running())


def test_neighbours_5_a_flushed_redis_restarts_nothing(installation: Installation, inbox: Receiver) -> None:
    pipeline = installation.publish_pipeline(name(), inbox.url)
    wait_until(lambda: installation.post(pipeline, order(0))[0] == 202)
    driver = installation.spark()
    client = redis.from_url(installation.endpoint("redis"))
    sent = []
    for _ in range(4):
        client.flushall()
        sent += installation.accepted(pipeline, map(order, range(50)))
    wait_until(lambda: set(sent) <= set(ids(inbox)))
    wait_until(lambda: set(installation.components().values()) == {"ok"})
    assert installation.spark() == driver
    assert max(ids(inbox).values()) == 1


def test_an_application_that_dies_while_redis_hangs_is_started_again(
    installation: Installation, inbox: Receiver
) -> None:
    pipeline = installation.publish_pipeline(name(), inbox.url)
    wait_until(lambda: installation.post(pipeline, order(0))[0] == 202)
    wait_until(lambda: len(inbox.bodies) == 1)
    [pid] = [process["pid"] for process in installation.supervisor.processes() if process["name"] == "redis"]
    driver = installation.spark()
    assert driver is not None
    psutil.Process(pid).suspend()
    try:
        for process in [driver, *driver.children(recursive=True)]:
            process.kill()
        sent = installation.accepted(pipeline, map(order, range(20)))
        wait_until(lambda: set(sent) <= set(ids(inbox)), SPARK_SECONDS)
        wait_until(lambda: installation.components()["spark"] == "ok")  # as PostgreSQL shows
    finally:
        psutil.Process(pid).resume()
    wait_until(lambda: set(installation.components().values()) == {"ok"})


@pytest.mark.usefixtures("job_that_runs_afterwards")
def test_neighbours_1_a_stopped_job_leaves_the_console_up_and_can_be_started_there(
    installation: Installation, inbox: Receiver
) -> None:
    pipeline = installation.publish_pipeline(name(), inbox.url)
    wait_until(lambda: installation.post(pipeline, order(0))[0] == 202)
    installation.set_job("stop")
    wait_until(lambda: job(installation)["status"] == "stopped")
    port = free_offset(range(5))
    installation.environment["HEADRACE_METRICS_PORT"] = str(port)
    # Every process's own port for metrics is taken, which must not stop it either.
    sockets = [listening(taken_port) for taken_port in range(port, port + 5)]
    try:
        installation.down()
        installation.up()
        assert installation.spark() is None
        assert "is stopped" in installation.components()["spark"]
        sent = installation.accepted(pipeline, map(order, range(10)))
        installation.set_job("start")
        wait_until(lambda: set(sent) <= set(ids(inbox)), SPARK_SECONDS)
    finally:
        del installation.environment["HEADRACE_METRICS_PORT"]
        for one in filter(None, sockets):
            one.close()


@contextmanager
def broken(installation: Installation, server: str) -> Iterator[None]:
    """While the server ends whenever it is started."""
    if server == "manager":
        installation.environment["HEADRACE_MANAGER_CERTIFICATE"] = "/nowhere"
        yield
        del installation.environment["HEADRACE_MANAGER_CERTIFICATE"]
        return
    read_at_its_start = (
        installation.var
        / {
            "kafka": "kafka/data/meta.properties",
            "redis": "redis/appendonlydir/appendonly.aof.manifest",
        }[server]
    )
    contents = read_at_its_start.read_bytes()
    read_at_its_start.write_bytes(b"broken")
    try:
        yield
    finally:
        read_at_its_start.write_bytes(contents)


@pytest.mark.long  # its short forms are ``tests/unit/test_starting.py`` and the test of a stopped job above
@pytest.mark.parametrize(
    ("server", "cause", "component"),
    [
        ("redis", "manifest", "redis"),
        ("kafka", "node ID not found", "kafka"),
        ("manager", "'/nowhere'", "ingest"),
    ],
)
def test_neighbours_1_the_console_runs_whatever_else_does_not(
    installation: Installation, inbox: Receiver, server: str, cause: str, component: str
) -> None:
    pipeline = installation.publish_pipeline(name(), inbox.url)
    wait_until(lambda: installation.post(pipeline, order(0))[0] == 202)
    installation.down()
    with broken(installation, server):
        problems = installation.up()
        assert f"{server} ended while it was starting. The end of its log" in problems
        assert cause in problems
        assert installation.api("GET", f"pipelines/{pipeline}/")[0] == 200
        assert installation.components()[component] != "ok"
        installation.down()
    assert installation.up() == ""
    sent = installation.accepted(pipeline, map(order, range(10)))
    wait_until(lambda: set(sent) <= set(ids(inbox)), SPARK_SECONDS)


def listening(port: int) -> socket.socket | None:
    with suppress(OSError):
        return socket.create_server(("", port))
    return None


@pytest.mark.usefixtures("job_that_runs_afterwards")
@pytest.mark.parametrize("topic", [routing.INPUT, pytest.param(routing.ADAPTED, marks=pytest.mark.long)])
def test_messages_that_retention_deleted_unread_are_reported_and_the_others_go_on(
    installation: Installation, inbox: Receiver, topic: str
) -> None:
    pipeline = installation.publish_pipeline(name(), inbox.url)
    wait_until(lambda: installation.post(pipeline, order(0))[0] == 202)
    wait_until(lambda: len(inbox.bodies) == 1)
    installation.set_job("stop")
    wait_until(lambda: job(installation)["status"] == "stopped")
    kafka = {"bootstrap.servers": installation.endpoint("kafka")}
    producer, admin = Producer(kafka), AdminClient(kafka)
    for _ in range(100):
        producer.produce(topic, b"{}", partition=0)
    assert producer.flush(LIMIT_SECONDS) == 0
    [deleted] = admin.delete_records([TopicPartition(topic, 0, -1)]).values()
    deleted.result()
    installation.set_job("start")
    sent = installation.accepted(pipeline, map(order, range(10)))
    wait_until(lambda: set(sent) <= set(ids(inbox)), SPARK_SECONDS)
    stage = "adapting" if topic == routing.INPUT else "syndicating"

    def alerts() -> str:
        return str(installation.api("GET", "alerts/?ended_at__isnull=true")[1])

    wait_until(lambda: f"before stage {stage} had read them" in alerts())
    assert f'headrace_lost_messages_total{{stage="{stage}"}} 100.0' in metrics(installation)


def metrics(installation: Installation) -> str:
    with urllib.request.urlopen(f"{installation.endpoint('console')}/metrics", timeout=LIMIT_SECONDS) as answer:
        return str(answer.read().decode())
