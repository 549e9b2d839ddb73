"""A whole installation, started as a user would, with its own folder and ports."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import psutil

from backend.runtime.installation import own_processes, spark_applications
from backend.runtime.layout import PORTS, Layout
from backend.runtime.starting import LIMIT_SECONDS
from backend.runtime.supervisor import Supervisor
from backend.settings import ROOT
from tests.ports import free_offset
from tests.waiting import wait_until

Answer = tuple[int, Any]

_ANSWER_SECONDS = 60.0
_COMMAND_SECONDS = 3 * LIMIT_SECONDS
"""``up`` waits that long for servers, then for services, then for Spark."""


def _environment(var: Path) -> dict[str, str]:
    """The environment without the variables of the tests' own servers, which the installation must not use."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HEADRACE_", "DJANGO_"))}
    return kept | {"HEADRACE_VAR": str(var)}


@dataclass
class Installation:
    """``manage.py up``, and the installation as clients see it."""

    var: Path
    offset: int = field(default_factory=lambda: free_offset(PORTS.values()))
    environment: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    checkout: Path = ROOT
    """Another one has its own ``.venv``."""

    def up(self) -> str:
        """Returns what it says of what does not run."""
        started = self._run("up", "--detach", "--port-offset", str(self.offset))
        self.facts = json.loads(self.manage("status", "--json"))
        return "".join(line for line in started.stderr.splitlines(True) if not line.startswith("Waiting for "))

    @classmethod
    def running(cls, var: Path) -> "Installation":
        """One that was started before."""
        environment = json.loads(Layout(var).environment_file.read_text())
        installation = cls(var, int(environment["HEADRACE_PORT_OFFSET"]))
        installation.facts = json.loads(installation.manage("status", "--json"))
        return installation

    def down(self) -> None:
        self.manage("down")

    def manage_in(self, *arguments: str) -> str:
        """Runs a command with the environment of the installation's servers."""
        environment = json.loads(Layout(self.var, self.offset).environment_file.read_text())
        return self.manage(*arguments, environment=environment)

    def manage(self, *arguments: str, environment: dict[str, str] | None = None) -> str:
        return self._run(*arguments, environment=environment).stdout

    def _run(self, *arguments: str, environment: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
        python = sys.executable if self.checkout == ROOT else self.checkout / ".venv/bin/python"
        result = subprocess.run(
            [str(python), str(self.checkout / "manage.py"), *arguments],
            env=_environment(self.var) | self.environment | (environment or {}),
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
        assert result.returncode == 0, f"{arguments}: {result.stdout}\n{result.stderr}"
        return result

    def endpoint(self, name: str) -> str:
        return str(self.facts["endpoints"][name])

    @property
    def database_url(self) -> str:
        environment = json.loads(Layout(self.var, self.offset).environment_file.read_text())
        return str(environment["HEADRACE_DATABASE_URL"])

    @property
    def password(self) -> str:
        return Path(self.facts["demo"]["password_file"]).read_text().strip()

    # -- servers -------------------------------------------------------------

    @property
    def supervisor(self) -> Supervisor:
        return Supervisor(Layout(self.var, self.offset))

    def processes(self) -> list[psutil.Process]:
        """All processes of the installation, including Spark."""
        return own_processes(Layout(self.var, self.offset))

    def spark(self) -> psutil.Process | None:
        """The Spark driver's JVM, if it is running."""
        applications = spark_applications(Layout(self.var, self.offset))
        return applications[0] if applications else None

    def lane_workers(self) -> list[psutil.Process]:
        """The Python workers of Spark's executor, which run the lane tasks."""
        driver = self.spark()
        workers = []
        for process in driver.children(recursive=True) if driver else []:
            with suppress(psutil.Error):  # it may be ending already
                if "spark_jobs.worker_daemon" in process.cmdline():
                    workers.append(process)
        daemons = {worker.ppid() for worker in workers}
        return [worker for worker in workers if worker.pid not in daemons]

    def components(self) -> dict[str, str]:
        """The state of each component, as reported by the console."""
        _, states = call("GET", f"{self.endpoint('console')}/health/ready")
        return states if isinstance(states, dict) else {}

    # -- API -----------------------------------------------------------------

    def api(self, method: str, path: str, body: Any = None) -> Answer:
        return call(method, f"{self.endpoint('api')}{path}", body, self.facts["demo"]["api_key"])

    def text(self, path: str) -> str:
        """The body of an answer as text, whatever its type and status."""
        headers = {"Authorization": f"Bearer {self.facts['demo']['api_key']}"}
        request = urllib.request.Request(f"{self.endpoint('api')}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return error.read().decode()

    def set_job(self, action: Literal["start", "stop"]) -> None:
        """Starts or stops the Spark application, which API keys may not."""
        code = (
            "from backend.apps.jobs.models import SparkJob; "
            f"from backend.apps.jobs.services import job_{action}; "
            "from backend.apps.workspaces.models import User; "
            f"job_{action}(job=SparkJob.objects.get(), actor=User.objects.filter(is_superuser=True).first())"
        )
        self.manage_in("shell", "-c", code)

    def create(self, path: str, body: Any) -> dict[str, Any]:
        status, answer = self.api("POST", path, body)
        assert status in (200, 201), answer
        return dict(answer)

    def publish_pipeline(self, name: str, url: str, **config: Any) -> str:
        """Creates and publishes a pipeline that delivers to the URL, and returns its id."""
        connector = self.create("connectors/", {"name": name, "type": "http", "connection": {"url": url}})
        output = {"name": "out", "connector": connector["id"]}
        pipeline = self.create("pipelines/", {"name": name, "config": {"outputs": [output], **config}})
        self.create(f"pipelines/{pipeline['id']}/publish/", {})
        return str(pipeline["id"])

    def post(self, pipeline: str, message: Any) -> Answer:
        """Sends one message to the HTTP input."""
        url = f"{self.endpoint('ingest')}/v1/pipelines/{pipeline}/messages"
        return call("POST", url, message, self.facts["demo"]["api_key"])

    def accepted(self, pipeline: str, messages: Iterable[Any]) -> list[str]:
        """Sends the messages one by one, each until Kafka has it, and returns their ids."""
        ids: list[str] = []

        def is_accepted(message: Any) -> bool:
            status, answer = self.post(pipeline, message)
            if status == 503 and answer["title"] == "Kafka is unavailable":
                return False  # on a busy machine its acknowledgement may come after the ingest has given up
            assert status == 202, answer
            ids.extend(answer["message_ids"])
            return True

        for message in messages:
            wait_until(lambda message=message: is_accepted(message))  # type: ignore[misc]
        return ids


@contextmanager
def temporary_installation(prefix: str, jars: Path | None = None, checkout: Path = ROOT) -> Iterator[Installation]:
    """An installation in its own folder, which is stopped and deleted afterwards. It is not started yet.

    ``jars`` is a folder with downloaded jars; without it they are downloaded again. ``checkout`` is whose code runs.
    """
    var = Path(tempfile.mkdtemp(prefix=f"headrace-{prefix}-"))
    var.chmod(0o755)  # PostgreSQL may run as another user
    if jars is not None:
        (var / "jars").symlink_to(jars.resolve())
    installation = Installation(var, checkout=checkout)
    try:
        yield installation
    finally:
        installation.down()
    shutil.rmtree(var)


def call(method: str, url: str, body: Any = None, key: str = "", content_type: str = "application/json") -> Answer:
    """Returns status and JSON body; status 0 if there is no answer. Bytes are sent unchanged, other bodies as JSON."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": content_type} | ({"Authorization": f"Bearer {key}"} if key else {})
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as answer:
            content = answer.read()
            return answer.status, json.loads(content) if content else None
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)
    except OSError as error:
        return 0, str(error)
