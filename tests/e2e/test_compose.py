"""``docker/compose.yaml``: its services start in their order with nothing but what it gives them, and messages flow."""

import itertools
import json
import os
import shutil
import tarfile
import tempfile
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from backend.runtime.health import http_ready
from backend.runtime.layout import Layout
from backend.runtime.versions import versions
from backend.settings import ROOT
from tests.containers.operator import Operator
from tests.containers.project import Project, own_network
from tests.e2e.test_messages import TRANSFORMS, ids, order
from tests.infra import QUICK_JAVA, QUICK_SPARK
from tests.receiver import Receiver
from tests.waiting import LIMIT_SECONDS, wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="Namespaces need root.")

BACKUP = ROOT / "docs/operations/backup.md"
SECOND_INGEST = 8180
BILLED = "SELECT count(*) FROM usage_billed"
HOST = "headrace.example.com"
SPARK = QUICK_SPARK | {"spark.executor.memory": "512m", "spark.executor.extraJavaOptions": QUICK_JAVA}
SETTINGS = f"""\
HEADRACE_PUBLIC_URL=https://{HOST}
HEADRACE_INGEST_URL=http://ingest:8080
HEADRACE_OUTBOUND_ALLOW=127.0.0.0/8
HEADRACE_SPARK_MASTER=spark://spark-master:7077
HEADRACE_SPARK_CONF={json.dumps(SPARK)}
HEADRACE_ADAPTING_BATCH_SECONDS=5
"""
"""What an administrator writes into ``headrace.env``."""


@pytest.fixture(scope="module")
def network() -> Iterator[None]:
    with own_network():
        yield


@pytest.fixture(scope="module")
def project(network: None, project_layout: Layout, request: pytest.FixtureRequest) -> Iterator[Project]:
    folder = Path(tempfile.mkdtemp(prefix="headrace-compose-"))
    folder.chmod(0o755)
    for name in ("compose.yaml", "defaults.env"):
        shutil.copy(ROOT / "docker" / name, folder)
    (folder / "headrace.env").write_text(SETTINGS)
    running = Project(folder, project_layout, {"spark"}, versions())
    try:
        running.up()
        yield running
    finally:
        running.down()
    if not request.session.testsfailed:
        shutil.rmtree(folder)


class Administrator:
    """Signed in at the console, through the proxy that ends TLS in front of it."""

    def __init__(self, password: str) -> None:
        self._headers = {"Host": HOST, "X-Forwarded-Proto": "https", "Referer": f"https://{HOST}/"}
        self.request("GET", "session/")
        self.request("POST", "session/", {"username": "admin", "password": password})

    def request(self, method: str, path: str, body: Any = None) -> Any:
        url = f"http://127.0.0.1:8000/api/v1/{path}"
        answer = requests.request(method, url, json=body, headers=self._headers, timeout=LIMIT_SECONDS)
        assert answer.ok, answer.text
        cookies = dict(pair.split("=", 1) for pair in self._headers.get("Cookie", "").split("; ") if pair)
        cookies |= answer.cookies.get_dict()
        self._headers |= {"Cookie": "; ".join(map("=".join, cookies.items())), "X-CSRFToken": cookies["csrftoken"]}
        return answer.json() if answer.content else None


@pytest.fixture(scope="module")
def administrator(project: Project) -> Administrator:
    return Administrator((project.volume("secrets") / "headrace_admin_password").read_text())


def publish(administrator: Administrator, name: str, url: str, transforms: list[Any]) -> str:
    connector = administrator.request("POST", "connectors/", {"name": name, "type": "http", "connection": {"url": url}})
    config = {"outputs": [{"name": "out", "connector": connector["id"]}], "transforms": transforms}
    pipeline = administrator.request("POST", "pipelines/", {"name": name, "config": config})
    administrator.request("POST", f"pipelines/{pipeline['id']}/publish/", {})
    return str(pipeline["id"])


@contextmanager
def ending(stop: threading.Event) -> Iterator[None]:
    """Sets the event, whatever happens."""
    try:
        yield
    finally:
        stop.set()


class Sender:
    """Sends to a plain pipeline and to one that transforms, and knows which messages were accepted."""

    def __init__(self, administrator: Administrator, inbox: Receiver) -> None:
        name = uuid.uuid4().hex[:8]
        self._key = administrator.request("POST", "api-keys/", {"name": name, "scopes": ["ingest"]})["key"]
        self._pipelines = [
            publish(administrator, f"{name}-{kind}", inbox.url, steps)
            for kind, steps in (("plain", []), ("transformed", TRANSFORMS))
        ]
        self._inbox = inbox
        self.sent: set[str] = set()

    def send(self) -> None:
        for pipeline in self._pipelines:
            wait_until(lambda pipeline=pipeline: self._accepted(pipeline, 0), 120)
            assert all(self._accepted(pipeline, number) for number in range(20))

    def wait_until_all_arrived(self) -> None:
        wait_until(lambda: self.sent <= set(ids(self._inbox)), 500)

    def send_through_balancer(self, stop: threading.Event, ports: tuple[int, ...]) -> list[int]:
        """Sends until it is stopped, as a balancer does that tries each request at one instance after the other.
        Returns the numbers of the requests that none has accepted."""
        rejected = []
        for number in itertools.count():
            if stop.wait(0.02):
                return rejected
            pipeline = self._pipelines[number % len(self._pipelines)]
            if not any(self._accepted(pipeline, number % 800, port) for port in ports):
                rejected.append(number)
        raise AssertionError

    def _accepted(self, pipeline: str, number: int, port: int = 8080) -> bool:
        try:
            return self._post(pipeline, number, port)
        except requests.ConnectionError:
            return False

    def _post(self, pipeline: str, number: int, port: int) -> bool:
        answer = requests.post(
            f"http://127.0.0.1:{port}/v1/pipelines/{pipeline}/messages",
            data=json.dumps(order(number)),
            headers={"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"},
            timeout=LIMIT_SECONDS,
        )
        if answer.status_code == 202:
            self.sent.update(answer.json()["message_ids"])
        return answer.status_code == 202


def test_messages_flow_and_a_stopped_worker_leaves_its_work_to_the_next(
    project: Project, administrator: Administrator, inbox: Receiver
) -> None:
    sender = Sender(administrator, inbox)
    sender.send()
    sender.wait_until_all_arrived()
    assert project.containers["worker"].stop(110), "The Spark application has not drained."
    sender.send()
    project.restart("worker")
    sender.wait_until_all_arrived()


def test_state_is_in_the_volumes(project: Project, administrator: Administrator) -> None:
    state = {path.name for path in project.volume("state").rglob("*")}
    assert {"checkpoints", "spark-data-plane.log"} <= state
    assert any(name.startswith("celerybeat-schedule") for name in state)
    assert (project.volume("kafka") / "meta.properties").exists()
    assert list(project.volume("postgresql").rglob("PG_VERSION"))
    secrets = [path.read_text().strip() for path in project.volume("secrets").glob("headrace_*")]
    logs = [container.log for container in project.containers.values()] + list(project.volume("state").rglob("*.log"))
    assert len(secrets) == 4
    assert not [log for log in logs for secret in secrets if secret in log.read_text(errors="replace")]


@pytest.mark.long
def test_a_rolling_restart_loses_and_refuses_nothing(
    project: Project, administrator: Administrator, inbox: Receiver
) -> None:
    """Its short form is the restart of the worker above."""
    sender, stop = Sender(administrator, inbox), threading.Event()
    sender.send()
    command = [text.replace("8080", str(SECOND_INGEST)) for text in project.services["ingest"].command]
    second = project.scale("ingest", command)
    wait_until(lambda: http_ready(f"http://127.0.0.1:{SECOND_INGEST}/health/ready"), 120)
    with ThreadPoolExecutor() as pool, ending(stop):
        sending = pool.submit(sender.send_through_balancer, stop, (8080, SECOND_INGEST))
        for name in ("manager", "console", "ingest", second, "workers", "read-gateway", "worker", "spark-worker"):
            before = len(sender.sent)
            assert project.containers[name].stop(110), f"{name} has not ended by itself."
            project.restart(name)
            if name == second:
                wait_until(lambda: http_ready(f"http://127.0.0.1:{SECOND_INGEST}/health/ready"), 120)
            wait_until(lambda before=before: len(sender.sent) > before + 50, 120)
        stop.set()
        assert sending.result() == []
    sender.wait_until_all_arrived()
    project.containers[second].stop(20)


@pytest.mark.long
def test_a_backup_is_made_and_restored_as_documented(
    project: Project, administrator: Administrator, inbox: Receiver, tmp_path: Path
) -> None:
    """Its short form is `test_sinks.py::test_a_topic_that_was_created_again_is_read_from_its_first_record`."""
    operator = Operator(project, tmp_path)
    sender = Sender(administrator, inbox)

    def billed() -> int:
        counted = tmp_path / "counted"
        operator.run(f"docker compose exec --no-TTY postgresql psql --username headrace -Atc '{BILLED}' > {counted}")
        return int(counted.read_text())

    before = billed()
    sender.send()
    sender.wait_until_all_arrived()
    operator.follow(BACKUP, "A dump every night")
    with tarfile.open(tmp_path / "secrets.tar") as secrets:
        assert "./secret-keys.json" in secrets.getnames()
    sender.send()
    sender.wait_until_all_arrived()
    expected = before + len(sender.sent)
    wait_until(lambda: billed() == expected)
    operator.follow(BACKUP, "Restore the database")
    wait_until(lambda: billed() == expected, 120)
    sender.send()
    sender.wait_until_all_arrived()

    assert project.containers["worker"].stop(110)
    delivered = set(sender.sent)
    sender.send()
    waiting = sender.sent - delivered
    operator.follow(BACKUP, "Copy everything")
    project.stop()
    project.remove_volumes()
    inbox.headers.clear()
    operator.follow(BACKUP, "Restore everything")
    wait_until(lambda: waiting <= set(ids(inbox)), 300)
    sender.send()
    wait_until(lambda: billed() == before + len(sender.sent), 300)
