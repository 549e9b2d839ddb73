"""The same application on a real Spark cluster: a master and two workers."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pyspark
import pytest

from backend.runtime.java import java_home
from backend.runtime.layout import Layout
from tests.e2e.test_messages import ids, name, order
from tests.installation import Installation
from tests.ports import free_ports
from tests.receiver import Receiver
from tests.waiting import wait_until

WORKERS = 2


class Cluster:
    """A standalone cluster on loopback."""

    def __init__(self, folder: Path, layout: Layout) -> None:
        port, *web = free_ports(WORKERS + 2)
        self.master = f"spark://127.0.0.1:{port}"
        self.log = folder / "cluster.log"
        home = Path(pyspark.__file__).parent
        environment = os.environ | {
            "JAVA_HOME": str(java_home(layout)),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
        }

        def start(role: str, *arguments: str) -> "subprocess.Popen[bytes]":
            command = [str(home / "bin/spark-class"), f"org.apache.spark.deploy.{role}", "--host", "127.0.0.1"]
            with self.log.open("ab") as log:
                return subprocess.Popen([*command, *arguments], env=environment, stdout=log, stderr=log)

        self._processes = [start("master.Master", "--port", str(port), "--webui-port", str(web[0]))]
        wait_until(lambda: "I have been elected leader" in self.log.read_text(), 60)
        for ui in web[1:]:
            work = ("--work-dir", str(folder / "work"), "--webui-port", str(ui))
            self._processes.append(start("worker.Worker", "--cores", "4", "--memory", "1g", *work, self.master))
        wait_until(lambda: self.log.read_text().count("Registering worker") == WORKERS, 60)

    def executors(self) -> list[psutil.Process]:
        processes = []
        for worker in self._processes[1:]:
            for process in psutil.Process(worker.pid).children(recursive=True):
                with suppress(psutil.Error):  # it may be ending already
                    if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
                        processes.append(process)
        return processes

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
            process.wait(30)


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="headrace-cluster-"))
    made.chmod(0o755)  # PostgreSQL may run as another user
    yield made
    shutil.rmtree(made)


def test_messages_flow_through_a_cluster_and_survive_the_loss_of_an_executor(
    folder: Path, project_layout: Layout, inbox: Receiver
) -> None:
    cluster = Cluster(folder, project_layout)
    var = folder / "var"
    var.mkdir()
    (var / "jars").symlink_to(project_layout.jars)
    installation = Installation(
        var,
        environment={
            "HEADRACE_SPARK_MASTER": cluster.master,
            "HEADRACE_SPARK_CONF": '{"spark.executor.memory": "512m", "spark.executor.cores": "4"}',
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
    )
    try:
        installation.up()
        assert len(cluster.executors()) == WORKERS
        pipeline = installation.publish_pipeline(name(), inbox.url)
        wait_until(lambda: installation.post(pipeline, order(0))[0] == 202)
        sent = installation.accepted(pipeline, map(order, range(200)))
        wait_until(lambda: set(sent) <= set(ids(inbox)), 60)
        cluster.executors()[0].kill()
        sent += installation.accepted(pipeline, map(order, range(200)))
        wait_until(lambda: set(sent) <= set(ids(inbox)), 120)
    finally:
        installation.down()
        cluster.stop()
