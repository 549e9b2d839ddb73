"""The same application on a real Spark cluster: a master and three workers, which have only a Python and a Spark.

The short form is ``test_compose.py``, whose Spark cluster has one worker."""

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pyspark
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from backend.domain import routing
from backend.runtime.java import java_home
from backend.runtime.layout import Layout
from backend.settings import ROOT
from tests.e2e.test_messages import TRANSFORMS, ids, name, order
from tests.infra import QUICK_INSTALLATION, QUICK_JAVA, QUICK_SPARK
from tests.installation import Installation
from tests.ports import free_ports
from tests.receiver import Receiver
from tests.waiting import LIMIT_SECONDS, wait_until

pytestmark = pytest.mark.long

WORKERS = 3
CORES = 4
SHORTAGE = "There are too few task slots for "
MANY_PARTITIONS = 20
"""More than the cluster has task slots."""


class Cluster:
    """A standalone cluster on loopback. Its workers have nothing in common: each has a folder with a Spark of its own,
    and, if the tests run as root, a user of its own, to whom the project is not there."""

    def __init__(self, folder: Path, layout: Layout) -> None:
        self._folder = folder
        self._java = java_home(layout)
        self._python = interpreter(folder)
        port, *self._web = free_ports(WORKERS + 2)
        self.master = f"spark://127.0.0.1:{port}"
        self.log = folder / "cluster.log"
        spark = Path(pyspark.__file__).parent
        arguments = ["--port", str(port), "--webui-port", str(self._web.pop())]
        self._master = self._started(spark, "master.Master", arguments, {}, [])
        wait_until(lambda: "I have been elected leader" in self.log.read_text(), 120)
        self._registered = 0
        self._workers: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, *workers: int) -> None:
        for worker in workers:
            home = self._folder / f"worker-{worker}"
            if not home.exists():
                self._install(home, worker)
            options = ["--cores", str(CORES), "--memory", "1g", "--work-dir", str(home / "work")]
            options += ["--webui-port", str(self._web[worker]), self.master]
            libraries = str(self._python.parent.parent / "lib")  # Python's own, which its copy would seek elsewhere
            environment = {"PATH": f"{home}/bin:/usr/bin:/bin", "HOME": str(home), "LD_LIBRARY_PATH": libraries}
            environment["SPARK_LOCAL_DIRS"] = str(home / "work")  # killed executors leave half a gigabyte behind
            prefix = as_another_user(user_of(worker)) if os.geteuid() == 0 else []
            self._workers[worker] = self._started(home / "spark", "worker.Worker", options, environment, prefix)
        self._registered += len(workers)
        wait_until(lambda: self.log.read_text().count("Registering worker") == self._registered, 120)

    def kill(self, *workers: int) -> None:
        """With their executors."""
        for worker in workers:
            for process in [*self.executors(worker), psutil.Process(self._workers[worker].pid)]:
                process.kill()
            self._workers.pop(worker).wait()

    def executors(self, *workers: int) -> list[psutil.Process]:
        """Of these workers, or of all."""
        processes = []
        for worker in workers or self._workers:
            for process in psutil.Process(self._workers[worker].pid).children(recursive=True):
                with suppress(psutil.Error):  # it may be ending already
                    if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
                        processes.append(process)
        return processes

    def stop(self) -> None:
        for process in (*self._workers.values(), self._master):
            process.terminate()
            process.wait(LIMIT_SECONDS)

    def _install(self, home: Path, worker: int) -> None:
        shutil.copytree(Path(pyspark.__file__).parent, home / "spark", copy_function=linked)
        (home / "bin").mkdir()
        (home / "bin/python3").symlink_to(self._python)
        (home / "work").mkdir()
        if os.geteuid() == 0:
            shutil.chown(home / "work", user_of(worker))

    def _started(
        self, spark: Path, role: str, arguments: list[str], environment: dict[str, str], prefix: list[str]
    ) -> "subprocess.Popen[bytes]":
        command = [*prefix, str(spark / "bin/spark-class"), f"org.apache.spark.deploy.{role}", "--host", "127.0.0.1"]
        variables = {
            "PATH": os.environ["PATH"],
            "JAVA_HOME": str(self._java),
            "SPARK_HOME": str(spark),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
            **environment,
        }
        with self.log.open("ab") as log:
            return subprocess.Popen([*command, *arguments], env=variables, cwd="/", stdout=log, stderr=log)


def user_of(worker: int) -> str:
    """One of the accounts that the machine has anyway: Hadoop needs a name."""
    return [account.pw_name for account in pwd.getpwall() if account.pw_uid != 0][worker]


def as_another_user(name: str) -> list[str]:
    """The beginning of a command that another user runs, to whom the project's folder is empty."""
    script = 'mount -t tmpfs tmpfs "$1" && exec setpriv --reuid "$2" --regid "$(id -g "$2")" --clear-groups "${@:3}"'
    return ["unshare", "--mount", "bash", "-c", script, "bash", str(ROOT), name]


def interpreter(folder: Path) -> Path:
    """The Python of the virtual environment without its packages, where every user may run it."""
    program = Path(sys.executable).resolve()
    if all(parent.stat().st_mode & 0o001 for parent in program.parents):
        return program
    left_out = shutil.ignore_patterns("site-packages", "test", "config-*", "*.a")
    shutil.copytree(sys.base_prefix, folder / "python", ignore=left_out, symlinks=True, copy_function=linked)
    return folder / "python" / program.relative_to(sys.base_prefix)


def linked(source: str, target: str) -> None:
    """A copy that takes no space, where the file system allows it."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="headrace-cluster-"))
    made.chmod(0o755)  # PostgreSQL may run as another user
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def cluster(folder: Path, project_layout: Layout) -> Iterator[Cluster]:
    running = Cluster(folder, project_layout)
    try:
        running.start(*range(WORKERS))
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="module")
def distributed(folder: Path, project_layout: Layout, cluster: Cluster) -> Iterator[Installation]:
    """An installation whose Spark application runs on the cluster."""
    var = folder / "var"
    var.mkdir()
    (var / "jars").symlink_to(project_layout.jars)
    shared = folder / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    spark = QUICK_SPARK | {
        "spark.executor.memory": "512m",
        "spark.executor.cores": str(CORES),
        "spark.executor.extraJavaOptions": QUICK_JAVA,
    }
    environment = QUICK_INSTALLATION | {
        "HEADRACE_SPARK_MASTER": cluster.master,
        "HEADRACE_SPARK_PYTHON": "python3",
        "HEADRACE_STAGING_URL": str(shared / "staging"),
        "HEADRACE_COLLECTIONS_URL": str(shared / "collections"),
        "HEADRACE_SPARK_CONF": json.dumps(spark),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    installation = Installation(var, environment=environment)
    try:
        installation.up()
        yield installation
    finally:
        installation.down()


def test_messages_flow_through_a_cluster_and_survive_the_loss_of_an_executor(
    distributed: Installation, cluster: Cluster, inbox: Receiver
) -> None:
    # Packing the packages takes a while before the first start.
    wait_until(lambda: len(cluster.executors()) == WORKERS, 300)
    pipeline = distributed.publish_pipeline(name(), inbox.url)
    wait_until(lambda: distributed.post(pipeline, order(0))[0] == 202)
    sent = distributed.accepted(pipeline, map(order, range(200)))
    wait_until(lambda: set(sent) <= set(ids(inbox)), 180)
    cluster.executors()[0].kill()
    sent += distributed.accepted(pipeline, map(order, range(200)))
    wait_until(lambda: set(sent) <= set(ids(inbox)), 120)


def test_with_too_few_task_slots_delivery_goes_on(distributed: Installation, cluster: Cluster, inbox: Receiver) -> None:
    """One worker's are enough for four of the five tasks that these pipelines need."""
    pipelines = [distributed.publish_pipeline(name(), inbox.url, transforms=steps) for steps in ([], TRANSFORMS)]
    distributed.publish_pipeline(name(), inbox.url, index=[{"name": "n", "path": "n"}])
    for pipeline in pipelines:
        wait_until(lambda pipeline=pipeline: distributed.post(pipeline, order(0))[0] == 202)
    cluster.kill(0, 1)

    def absent() -> str:
        """The stages that are said not to run."""
        problem = distributed.components().get("spark", SHORTAGE)
        return problem.partition(":")[0].partition(SHORTAGE)[2]

    def states() -> set[str]:
        """Of all stages."""
        return {stage["state"] for stage in distributed.api("GET", "jobs/")[1][0]["stages"]}

    wait_until(lambda: "filtering" in absent().split(", "), 120, 1, explain=distributed.components)
    assert not {"syndicating", "adapting"} & set(absent().split(", "))
    sent = {one for pipeline in pipelines for one in distributed.accepted(pipeline, map(order, range(50)))}
    wait_until(lambda: sent <= set(ids(inbox)), 120)
    cluster.start(0, 1)
    wait_until(lambda: states() <= {"running", "resting"}, 240, 1)


def test_a_partition_without_a_task_slot_is_reported(distributed: Installation) -> None:
    """The last one here: the partitions that it adds cannot be removed."""
    kafka = {"bootstrap.servers": distributed.endpoint("kafka")}
    admin, producer = AdminClient(kafka), Producer(kafka)
    [added] = admin.create_partitions([NewPartitions(routing.INPUT, MANY_PARTITIONS)]).values()
    added.result()

    def starves() -> bool:
        for partition in range(MANY_PARTITIONS):
            producer.produce(routing.INPUT, b"{}", partition=partition)
        assert producer.flush(LIMIT_SECONDS) == 0
        return f"of {routing.INPUT}" in distributed.components()["spark"]

    wait_until(starves, 90, 1)
