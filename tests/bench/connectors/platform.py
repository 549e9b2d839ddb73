"""The servers of the benchmark, the manager, and the processes that are measured."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from backend.domain import limits, routing
from backend.kafka.client.ends import end_offsets
from backend.runtime import servers, stack
from backend.runtime.jars import ensure_jars
from backend.runtime.java import java_home
from backend.runtime.layout import Layout
from backend.settings import ROOT, KafkaSettings, platform_settings
from spark_jobs.streaming.stop_channel import StopChannel
from tests import infra
from tests.ports import free_ports
from tests.seaweedfs import seaweedfs_server

PARTITIONS = 4
PEERS_TOPIC = "bench_peer"
SOURCE_PORT = free_ports(1)[0]
SOURCE_URL = f"postgresql://{servers.DATABASE}:{infra.PASSWORD}@127.0.0.1:{SOURCE_PORT}/postgres"
SOURCE = {
    "dialect": "postgresql",
    "host": "127.0.0.1",
    "port": SOURCE_PORT,
    "database": "postgres",
    "user": servers.DATABASE,
    "password": infra.PASSWORD,
    "tls": "disable",
}
_SOURCE_CONNECTIONS = 300


@dataclass
class Used:
    """What a process used between two moments, and its peak of memory until the second one."""

    cpu: float
    peak: float
    """MiB."""


class Measured:
    """A process. ``/proc`` keeps the peak of its memory."""

    def __init__(self, process: "subprocess.Popen[Any]") -> None:
        self.process = process
        self._psutil = psutil.Process(process.pid)

    def cpu(self) -> float:
        """Seconds, with those of children that have ended."""
        return sum(self._psutil.cpu_times()[:4])

    def peak(self) -> float:
        """MiB since the start or the last ``forget_peak``."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024

    def forget_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    @contextmanager
    def used(self) -> Iterator[Used]:
        """Filled at the end of the body."""
        used = Used(self.cpu(), 0)
        yield used
        used.cpu, used.peak = self.cpu() - used.cpu, self.peak()


@dataclass
class Platform:
    """What runs during the whole benchmark."""

    kafka: Measured
    source: Measured

    def servers_cpu(self) -> float:
        """CPU seconds of the source's server and of Kafka; the source's count once its connections have ended."""
        return self.kafka.cpu() + self.source.cpu()

    @contextmanager
    def appended(self, topic: str, records: int) -> Iterator[None]:
        """Checks that the body appends so many records to the topic, whose space is then free again."""
        admin = AdminClient({"bootstrap.servers": infra.KAFKA})
        before = sum(end_offsets(admin, {topic}).values())
        yield
        ends = end_offsets(admin, {topic})
        assert sum(ends.values()) - before == records
        parts = [TopicPartition(name, partition, end) for (name, partition), end in ends.items()]
        for deleted in admin.delete_records(parts).values():
            deleted.result(30)


def _make_topics(*names: str) -> None:
    topics = [NewTopic(name, PARTITIONS, 1, config={"max.message.bytes": str(limits.TOPIC_BYTES)}) for name in names]
    admin = AdminClient({"bootstrap.servers": infra.KAFKA})
    for created in admin.create_topics(topics).values():
        created.result(60)


@contextmanager
def running_platform() -> Iterator[Platform]:
    """Servers with data of their own, which are deleted at the end."""
    layout = Layout(ROOT / "var")
    layout.create()
    java = java_home(layout)
    ensure_jars(layout, java)
    var = infra.VAR
    for folder in ("postgresql", "source"):
        servers.postgresql_prepare(var / folder, infra.PASSWORD)
    servers.kafka_prepare(var / "kafka", infra.KAFKA_PORT, infra.CONTROLLER_PORT, java, layout.jars)
    source_command = servers.postgresql_command(var / "source", SOURCE_PORT)
    source_command += ["-c", f"max_connections={_SOURCE_CONNECTIONS}"]
    user = servers.postgresql_user()
    postgresql = _postgresql(
        "postgresql", servers.postgresql_command(var / "postgresql", infra.POSTGRESQL_PORT), infra.DATABASE_URL, user
    )
    source = _postgresql("source", source_command, SOURCE_URL, user)
    redis = infra.Server(
        "redis",
        servers.redis_command(var / "redis", infra.REDIS_PORT),
        lambda: stack.redis_ready(infra.REDIS_URL),
    )
    kafka = infra.Server(
        "kafka",
        servers.kafka_command(var / "kafka", java, layout.jars),
        lambda: stack.kafka_ready(KafkaSettings(bootstrap_servers=infra.KAFKA)),
    )
    with ExitStack() as running:
        running.callback(infra.pytest_unconfigure)
        for server in (postgresql, source, redis, kafka, seaweedfs_server()):
            server.start()
            running.callback(server.stop)
        _make_topics(*routing.TOPICS, PEERS_TOPIC)
        running.enter_context(_manager())
        assert kafka.process is not None
        assert source.process is not None
        yield Platform(Measured(kafka.process), Measured(source.process))


def _postgresql(name: str, command: list[str], url: str, user: str | None) -> infra.Server:
    # Stops without waiting for connections to end.
    return infra.Server(name, command, lambda: stack.postgresql_ready(url), user, signal.SIGINT)


@contextmanager
def _manager() -> Iterator[None]:
    """Django is set up in this process, and the manager runs in another."""
    import django

    django.setup()
    from django.core.management import call_command

    from backend.apps.connectors.secrets import create_keys_file

    call_command("migrate", verbosity=0)
    create_keys_file(infra.VAR / "secrets/secret-keys.json")
    with (infra.VAR / "manager.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "manage.py", "manager_grpc"], cwd=ROOT, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def running_slot(kind: str) -> Iterator[Measured]:
    """A task that reads inputs (``input``), delivers (``syndicating``) or stores files (``exporter``), once it has
    started."""
    channel = StopChannel("127.0.0.1", platform_settings().service_token)
    command = [sys.executable, "-m", "tests.bench.connectors.slot", kind, str(channel.address[1])]
    with (infra.VAR / f"{kind}.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
    try:
        until(lambda: channel.report(0) is not None, 120)
        yield Measured(process)
    finally:
        channel.stop()
        process.wait(60)


def until(condition: Callable[[], object], seconds: float = 3600.0) -> None:
    """Returns once the condition holds. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.1)


def source_connection() -> "psycopg.Connection[Any]":
    return psycopg.connect(SOURCE_URL, autocommit=True)
