"""Real servers for the tests, on free ports of loopback.

Loaded as a pytest plugin before Django's settings are read, so that the settings name these servers. Each server
starts when the first test requests it.
"""

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backend.domain.registry import PLUGINS
from backend.runtime import class_archives, servers, stack
from backend.runtime.jars import ensure_jars
from backend.runtime.java import java_home
from backend.runtime.layout import Layout
from backend.settings import ROOT, KafkaSettings
from tests.exclusive import exclusive
from tests.ports import free_ports
from tests.waiting import LIMIT_SECONDS, start_of, wait_for_processes

VAR = Path(tempfile.mkdtemp(prefix="headrace-test-"))
VAR.chmod(0o755)  # PostgreSQL may run as another user
(VAR / "static").mkdir()
FILES_ROOT = VAR / "files"
FILES_ROOT.mkdir()
JDBC_DRIVERS = VAR / "jdbc"
PASSWORD = "test-password"
PLUGINS_FOLDER = ROOT / "tests/plugins"
"""Toy components, one file each."""
STAGE_TOYS = ROOT / "tests/stage_toys"
"""Toy stages, an entry and its module each. They are no part of the folder above, since each needs task slots."""


POSTGRESQL_PORT, REDIS_PORT, KAFKA_PORT, CONTROLLER_PORT, MANAGER_PORT, KEYCLOAK_PORT, OPENBAO_PORT, REGISTRY_PORT = (
    free_ports(8)
)
DATABASE_URL = f"postgresql://{servers.DATABASE}:{PASSWORD}@127.0.0.1:{POSTGRESQL_PORT}/postgres"
REDIS_URL = f"redis://127.0.0.1:{REDIS_PORT}/0"
KAFKA = f"127.0.0.1:{KAFKA_PORT}"
SERVICE_TOKEN = "test-service-token"
KEYCLOAK_REALM = f"http://127.0.0.1:{KEYCLOAK_PORT}/realms/headrace"
QUICK_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""A Java program of a test has ended before the optimizing compiler would have saved the time that it takes. Verifying
its classes, which a compiler has made, took nearly half of the start of a small one."""
QUICK_SPARK = {"spark.driver.extraJavaOptions": f"{QUICK_JAVA} -XX:ReservedCodeCacheSize=128m"}
"""The same for Spark's driver, whose options the installation sets."""
QUICK_INSTALLATION = {
    "HEADRACE_SPARK_CONF": json.dumps(QUICK_SPARK),
    "HEADRACE_ADAPTING_BATCH_SECONDS": "5",  # for the end of which every stop waits
}
"""The environment of an installation that tests stop and start."""

os.environ |= {
    "DJANGO_SETTINGS_MODULE": "backend.config.settings.test",
    "HEADRACE_VAR": str(VAR),
    PLUGINS: str(PLUGINS_FOLDER),
    "HEADRACE_DATABASE_URL": DATABASE_URL,
    "HEADRACE_REDIS_URL": REDIS_URL,
    "HEADRACE_KAFKA_BOOTSTRAP_SERVERS": KAFKA,
    "HEADRACE_STAGING_URL": str(VAR / "staging"),
    "HEADRACE_COLLECTIONS_URL": str(VAR / "collections"),
    "HEADRACE_MANAGER_ADDRESS": f"127.0.0.1:{MANAGER_PORT}",
    "HEADRACE_SERVICE_TOKEN": SERVICE_TOKEN,
    "HEADRACE_OIDC_ISSUER": KEYCLOAK_REALM,
    "HEADRACE_OIDC_CLIENT_SECRET": "client-secret",
    "HEADRACE_OIDC_ROLES": '{"platform-admin": ["main:admin"], "platform-viewer": ["main:viewer"]}',
    "HEADRACE_SCHEMA_REGISTRY_URL": f"http://127.0.0.1:{REGISTRY_PORT}/apis/ccompat/v7",
    "HEADRACE_FILES_ROOT": str(FILES_ROOT),
    "HEADRACE_JDBC_DRIVERS": str(JDBC_DRIVERS),
    "HEADRACE_OUTBOUND_ALLOW": "127.0.0.0/8,::1/128",
    "HEADRACE_SECRET_KEYS_FILE": str(VAR / "secrets/secret-keys.json"),
}


def pytest_configure() -> None:
    """Of tests only: benchmarks use these servers as well, and measure Java programs as users run them."""
    os.environ["JDK_JAVA_OPTIONS"] = QUICK_JAVA


class Server:
    """A server process that a test can stop and restart with the same data."""

    def __init__(
        self,
        name: str,
        command: list[str],
        ready: Callable[[], bool],
        user: str | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
    ) -> None:
        self._name = name
        self._command = command
        self._ready = ready
        self._user = user
        self._stop_signal = stop_signal
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        path = VAR / f"{self._name}.log"
        with path.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log, user=self._user, cwd="/")
        try:
            wait_for_processes([start_of(self._name, self._ready, self.process, path)])
        except BaseException:
            self.stop(signal.SIGKILL)
            raise

    def stop(self, number: signal.Signals | None = None) -> None:
        if self.process is not None:
            self.process.send_signal(number or self._stop_signal)
            self.process.wait(LIMIT_SECONDS)
            self.process = None


def _running(server: Server) -> Iterator[Server]:
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def project_layout() -> Layout:
    """The project's own var folder, whose downloads the tests share."""
    layout = Layout(ROOT / "var")
    with exclusive("downloads"):
        layout.create()
        home = java_home(layout)
        ensure_jars(layout, home)
        class_archives.ensure_class_archives(layout, home)
    return layout


_UNSYNCED = ["-c", "fsync=off", "-c", "full_page_writes=off"]
"""Data survive the death of the server as ever, only not that of the machine. Half of the time of tests that empty all
tables would be spent on it."""


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    data = VAR / "postgresql"
    servers.postgresql_prepare(data, PASSWORD)
    yield from _running(
        Server(
            "postgresql",
            [*servers.postgresql_command(data, POSTGRESQL_PORT), *_UNSYNCED],
            lambda: stack.postgresql_ready(DATABASE_URL),
            servers.postgresql_user(),
            signal.SIGINT,  # fast shutdown, without waiting for clients to disconnect
        )
    )


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Server]:
    command = servers.redis_command(VAR / "redis", REDIS_PORT)
    yield from _running(Server("redis", command, lambda: stack.redis_ready(REDIS_URL)))


@pytest.fixture(scope="session")
def kafka(project_layout: Layout) -> Iterator[Server]:
    home, folder, jars = java_home(project_layout), VAR / "kafka", project_layout.jars
    archived = class_archives.options(class_archives.archive(jars, home, class_archives.KAFKA))
    servers.kafka_prepare(folder, KAFKA_PORT, CONTROLLER_PORT, home, jars, java_options=archived)
    command = servers.kafka_command(folder, home, jars, archived)
    yield from _running(Server("kafka", command, lambda: stack.kafka_ready(KafkaSettings(bootstrap_servers=KAFKA))))


@pytest.fixture(scope="session")
def secret_keys() -> None:
    from backend.apps.connectors.secrets import create_keys_file

    path = VAR / "secrets/secret-keys.json"
    if not path.exists():
        create_keys_file(path)


def pytest_unconfigure() -> None:
    shutil.rmtree(VAR, ignore_errors=True)
