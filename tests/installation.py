"""A whole installation, brought up as a user would, in a folder and on ports of its own."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from backend.runtime.installation import own_processes, spark_applications
from backend.runtime.layout import PORTS, ROOT, Layout
from backend.runtime.supervisor import Supervisor
from tests.ports import free_offset

Answer = tuple[int, Any]


def _environment(var: Path) -> dict[str, str]:
    """The tests' own servers must not reach the installation."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HEADRACE_", "DJANGO_"))}
    return kept | {"HEADRACE_VAR": str(var)}


@dataclass
class Installation:
    """``manage.py up`` and what a client sees of it."""

    var: Path
    offset: int = field(default_factory=lambda: free_offset(PORTS.values()))
    environment: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def up(self) -> None:
        self.manage("up", "--detach", "--port-offset", str(self.offset))
        self.facts = json.loads(self.manage("status", "--json"))

    def down(self) -> None:
        self.manage("down")

    def manage_in(self, *arguments: str) -> str:
        """A command that needs the installation's own servers."""
        environment = json.loads(Layout(self.var, self.offset).environment_file.read_text())
        return self.manage(*arguments, environment=environment)

    def manage(self, *arguments: str, environment: dict[str, str] | None = None) -> str:
        done = subprocess.run(
            [sys.executable, str(ROOT / "manage.py"), *arguments],
            env=_environment(self.var) | self.environment | (environment or {}),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def endpoint(self, name: str) -> str:
        return str(self.facts["endpoints"][name])

    @property
    def password(self) -> str:
        return Path(self.facts["demo"]["password_file"]).read_text().strip()

    # -- servers -------------------------------------------------------------

    @property
    def supervisor(self) -> Supervisor:
        return Supervisor(Layout(self.var, self.offset))

    def processes(self) -> list[psutil.Process]:
        """All that belong to it, Spark included."""
        return own_processes(Layout(self.var, self.offset))

    def spark(self) -> psutil.Process | None:
        """The driver's JVM, when it runs."""
        found = spark_applications(Layout(self.var, self.offset))
        return found[0] if found else None

    def components(self) -> dict[str, str]:
        """What the console says of each component."""
        _, states = call("GET", f"{self.endpoint('console')}/health/ready")
        return states if isinstance(states, dict) else {}

    # -- API -----------------------------------------------------------------

    def api(self, method: str, path: str, body: Any = None) -> Answer:
        return call(method, f"{self.endpoint('api')}{path}", body, self.facts["demo"]["api_key"])

    def text(self, path: str) -> str:
        """An answer as it came, whatever its type and status."""
        headers = {"Authorization": f"Bearer {self.facts['demo']['api_key']}"}
        request = urllib.request.Request(f"{self.endpoint('api')}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return error.read().decode()

    def create(self, path: str, body: Any) -> dict[str, Any]:
        status, answer = self.api("POST", path, body)
        assert status in (200, 201), answer
        return dict(answer)

    def publish_pipeline(self, name: str, url: str, **config: Any) -> str:
        """A published pipeline that delivers to the URL; its id."""
        connector = self.create("connectors/", {"name": name, "type": "http", "connection": {"url": url}})
        output = {"name": "out", "connector": connector["id"]}
        pipeline = self.create("pipelines/", {"name": name, "config": {"outputs": [output], **config}})
        self.create(f"pipelines/{pipeline['id']}/publish/", {})
        return str(pipeline["id"])

    def post(self, pipeline: str, message: Any) -> Answer:
        """One message to the HTTP input."""
        url = f"{self.endpoint('ingest')}/v1/pipelines/{pipeline}/messages"
        return call("POST", url, message, self.facts["demo"]["api_key"])

    def accepted(self, pipeline: str, messages: Iterable[Any]) -> list[str]:
        """Posts them one by one; the ids of all."""
        ids = []
        for message in messages:
            status, answer = self.post(pipeline, message)
            assert status == 202, answer
            ids += answer["message_ids"]
        return ids


@contextmanager
def temporary_installation(prefix: str, jars: Path | None = None) -> Iterator[Installation]:
    """One in a folder of its own, which is brought down and deleted afterwards. It is not up yet.

    ``jars`` is a folder of downloaded jars to use; without it they are downloaded anew.
    """
    var = Path(tempfile.mkdtemp(prefix=f"headrace-{prefix}-"))
    var.chmod(0o755)  # PostgreSQL may run as another user
    if jars is not None:
        (var / "jars").symlink_to(jars.resolve())
    found = Installation(var)
    try:
        yield found
    finally:
        found.down()
    shutil.rmtree(var)


def call(method: str, url: str, body: Any = None, key: str = "", content_type: str = "application/json") -> Answer:
    """Status and JSON body; 0 when nobody answers. Bytes are sent as they are, all else as JSON."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": content_type} | ({"Authorization": f"Bearer {key}"} if key else {})
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)
    except OSError as error:
        return 0, str(error)
