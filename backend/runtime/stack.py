"""The processes of the embedded installation in their start order, with a readiness check for each."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import psycopg
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from redis.exceptions import RedisError

from backend.apps.connectors.secrets import create_keys_file
from backend.kafka.proxy.config import ConfigError, ProxyConfig, load
from backend.network.redis_client import redis_client
from backend.runtime import class_archives, servers
from backend.runtime.documentation import ensure_documentation
from backend.runtime.errors import CannotStartError
from backend.runtime.health import http_ready, is_listening
from backend.runtime.jars import ensure_jars
from backend.runtime.java import java_home
from backend.runtime.layout import PORTS, Layout, write_private
from backend.runtime.node import ensure_frontend
from backend.settings import ROOT, EmbeddedSettings, KafkaSettings

_READY_SECONDS = 2.0
_LOOPBACK = "127.0.0.0/8,::1/128"
"""The demo's receiver listens there."""


@dataclass(frozen=True)
class Process:
    """One supervised process. ``ready`` checks it with a real request."""

    name: str
    command: list[str]
    ready: Callable[[], bool]
    user: str | None = None
    stop_signal: str = "TERM"
    stop_seconds: int = 20
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Stack:
    """``servers`` start first, then the database is migrated, then ``services`` start."""

    servers: list[Process]
    services: list[Process]
    environment: dict[str, str]


def prepare(layout: Layout) -> Stack:
    """Downloads what is missing and writes all configuration files. Raises CannotStartError."""
    layout.create()
    home = java_home(layout)
    ensure_jars(layout, home)
    ensure_frontend(layout)
    ensure_documentation()
    servers.postgresql_prepare(layout.var / "postgresql", layout.secret("postgresql-password"))
    if not _has_own_kafka():
        servers.kafka_prepare(
            layout.var / "kafka",
            layout.port("kafka"),
            layout.port("kafka_controller"),
            home,
            layout.jars,
            java_options=_kafka_options(layout, home),
        )
    secret_keys = layout.secrets / "secret-keys.json"
    if not secret_keys.exists():
        create_keys_file(secret_keys)
    proxy = _kafka_proxy_config()
    environment = _environment(layout, home, proxy)
    write_private(layout.environment_file, json.dumps(environment, indent=1))
    services = _services(layout, environment)
    if proxy is not None:
        services.append(_kafka_proxy(*proxy))
    return Stack(_servers(layout, home, environment), services, environment)


def check_ports(layout: Layout) -> None:
    """Raises CannotStartError, which names every port that another process uses."""
    unused = {"kafka", "kafka_controller"} if _has_own_kafka() else set()
    taken = [f"{layout.port(name)} ({name})" for name in PORTS.keys() - unused if not _is_free(layout.port(name))]
    if taken:
        raise CannotStartError(
            f"These ports are in use: {', '.join(taken)}. Stop the processes that use them, or move "
            "all of Headrace's ports "
            "with --port-offset, for example --port-offset 1000."
        )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _environment(layout: Layout, home: Path, proxy: tuple[Path, ProxyConfig] | None) -> dict[str, str]:
    proxies = f"http://{proxy[1].operations}" if proxy is not None and proxy[1].operations is not None else ""
    password = layout.secret("postgresql-password")
    return {
        "HEADRACE_VAR": str(layout.var),
        "HEADRACE_PORT_OFFSET": str(layout.port_offset),
        "HEADRACE_EMBEDDED": "true",
        "HEADRACE_DATABASE_URL": f"postgresql://{servers.DATABASE}:{password}@127.0.0.1:{layout.port('postgresql')}/postgres",
        "HEADRACE_REDIS_URL": f"redis://127.0.0.1:{layout.port('redis')}/0",
        "HEADRACE_MANAGER_ADDRESS": f"127.0.0.1:{layout.port('manager')}",
        "HEADRACE_SERVICE_TOKEN": layout.secret("service-token"),
        "HEADRACE_DJANGO_SECRET_KEY": layout.secret("django-secret-key"),
        "HEADRACE_SECRET_KEYS_FILE": str(layout.secrets / "secret-keys.json"),
        "HEADRACE_PUBLIC_URL": f"http://127.0.0.1:{layout.port('console')}",
        "HEADRACE_INGEST_URL": f"http://127.0.0.1:{layout.port('ingest')}",
        "HEADRACE_JAVA_HOME": str(home),
        "HEADRACE_SPARK_CLASS_ARCHIVE": str(class_archives.archive(layout.jars, home, class_archives.SPARK)),
        "HEADRACE_STAGING_URL": os.environ.get("HEADRACE_STAGING_URL", "") or str(layout.var / "staging"),
        "HEADRACE_COLLECTIONS_URL": os.environ.get("HEADRACE_COLLECTIONS_URL", "") or str(layout.var / "collections"),
        **_gateway_settings(layout),
        **_kafka_settings(layout),
        "HEADRACE_KAFKA_PROXIES": os.environ.get("HEADRACE_KAFKA_PROXIES", "") or proxies,
        "HEADRACE_OUTBOUND_ALLOW": ",".join(filter(None, [_LOOPBACK, os.environ.get("HEADRACE_OUTBOUND_ALLOW")])),
    }


def _gateway_settings(layout: Layout) -> dict[str, str]:
    addresses = {"LISTEN": layout.port("gateway"), "HTTP_LISTEN": layout.port("gateway_http")}
    names = {f"HEADRACE_GATEWAY_{name}": f"127.0.0.1:{port}" for name, port in addresses.items()}
    return {name: os.environ.get(name, "") or address for name, address in names.items()}


def _has_own_kafka() -> bool:
    """Whether the operator names a Kafka cluster, so that none is started."""
    return bool(os.environ.get("HEADRACE_KAFKA_BOOTSTRAP_SERVERS"))


def _kafka_options(layout: Layout, home: Path) -> list[str]:
    return class_archives.options(class_archives.archive(layout.jars, home, class_archives.KAFKA))


def _kafka_settings(layout: Layout) -> dict[str, str]:
    """Raises CannotStartError."""
    names = [f"HEADRACE_KAFKA_{name}".upper() for name in KafkaSettings.model_fields]
    settings = {name: value for name in names if (value := os.environ.get(name))}
    if settings and not _has_own_kafka():
        raise CannotStartError(
            f"{', '.join(sorted(settings))}: these settings are for a Kafka cluster of your own; name its brokers in "
            "HEADRACE_KAFKA_BOOTSTRAP_SERVERS."
        )
    return settings or {"HEADRACE_KAFKA_BOOTSTRAP_SERVERS": f"127.0.0.1:{layout.port('kafka')}"}


def _servers(layout: Layout, home: Path, environment: dict[str, str]) -> list[Process]:
    postgresql = layout.var / "postgresql"
    started = [
        Process(
            "postgresql",
            servers.postgresql_command(postgresql, layout.port("postgresql")),
            lambda: postgresql_ready(environment["HEADRACE_DATABASE_URL"]),
            user=servers.postgresql_user(),
            stop_signal="INT",  # fast shutdown
        ),
        Process(
            "redis",
            servers.redis_command(layout.var / "redis", layout.port("redis")),
            lambda: redis_ready(environment["HEADRACE_REDIS_URL"]),
        ),
    ]
    if not _has_own_kafka():
        started.append(
            Process(
                "kafka",
                servers.kafka_command(layout.var / "kafka", home, layout.jars, _kafka_options(layout, home)),
                lambda: kafka_ready(KafkaSettings(bootstrap_servers=environment["HEADRACE_KAFKA_BOOTSTRAP_SERVERS"])),
                stop_seconds=30,
            )
        )
    return started


def _kafka_proxy_config() -> tuple[Path, ProxyConfig] | None:
    """The configuration of the Kafka proxy that ``up`` starts, if any. Raises CannotStartError."""
    name = EmbeddedSettings().kafka_proxy_config
    path = Path(name).resolve()
    try:
        return (path, load(path)) if name else None
    except ConfigError as error:
        raise CannotStartError(str(error)) from None


def _kafka_proxy(path: Path, config: ProxyConfig) -> Process:
    operations = config.operations
    return Process(
        "kafka-proxy",
        [sys.executable, str(ROOT / "manage.py"), "kafka_proxy", "--config", str(path)],
        lambda: operations is None or http_ready(f"http://{operations}/ready"),
        stop_seconds=config.drain_timeout_ms // 1000 + 5,
    )


def _services(layout: Layout, environment: dict[str, str]) -> list[Process]:
    python = [sys.executable, "-m"]
    manage = [sys.executable, str(ROOT / "manage.py")]
    beat = layout.run / "celerybeat-schedule"
    ingest, console = layout.port("ingest"), layout.port("console")
    return [
        Process("manager", [*manage, "manager_grpc"], lambda: grpc_ready(layout.port("manager"))),
        Process(
            "worker",
            [
                *(*python, "celery", "-A", "backend.config.celery", "worker", "--beat", "--pool", "threads"),
                *("--loglevel", "WARNING", "--schedule", str(beat)),
                *("--without-gossip", "--without-mingle", "--without-heartbeat"),
            ],
            lambda: True,  # it is ready once the Spark application has sent a heartbeat
        ),
        Process(
            "ingest",
            [
                *(*python, "uvicorn", "backend.ingest.app:app", "--host", "127.0.0.1", "--port", str(ingest)),
                *("--loop", "uvloop", "--http", "httptools", "--no-access-log", "--log-level", "warning"),
            ],
            lambda: http_ready(f"http://127.0.0.1:{ingest}/health/ready"),
        ),
        Process(
            "console",
            [
                *(*python, "uvicorn", "backend.config.asgi:application", "--host", "127.0.0.1"),
                *("--port", str(console), "--loop", "uvloop", "--lifespan", "off"),
                *("--no-access-log", "--log-level", "warning", "--timeout-graceful-shutdown", "3"),
            ],
            lambda: http_ready(f"http://127.0.0.1:{console}/health/live"),
        ),
        Process("workers", [*manage, "workers"], lambda: True),
        Process(
            "read-gateway",
            [*manage, "read_gateway"],
            lambda: is_listening(environment["HEADRACE_GATEWAY_HTTP_LISTEN"]),
        ),
    ]


class Preparation:
    """``manage.py prepare``, which migrates the database and then waits for Kafka."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def finish(self) -> dict[str, Any]:
        """Lets it go on with the topics. Returns what is wanted: the ``jobs`` with their desired states, and
        ``problems``. Raises CannotStartError."""
        output, errors = self._process.communicate("\n")
        if self._process.returncode != 0:
            raise CannotStartError(f"`manage.py prepare` failed:\n{errors.strip()[-3000:]}")
        return dict(json.loads(output))


@contextmanager
def preparation(environment: dict[str, str]) -> Iterator[Preparation]:
    """Begins to prepare the database, in a process of its own, which ends with the context."""
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "manage.py"), "prepare", "--json"],
        env=os.environ | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Preparation(process)
    finally:
        process.kill()
        process.wait()


def postgresql_ready(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def redis_ready(url: str) -> bool:
    try:
        return bool(redis_client(url).ping())
    except RedisError:
        return False


def kafka_ready(kafka: KafkaSettings) -> bool:
    try:
        AdminClient({**kafka.client(), "log_level": 0}).list_topics(timeout=_READY_SECONDS)
    except KafkaException:
        return False
    return True


def grpc_ready(port: int) -> bool:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=_READY_SECONDS)
        except grpc.FutureTimeoutError:
            return False
    return True
