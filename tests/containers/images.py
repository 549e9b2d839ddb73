"""The images that ``docker/compose.yaml`` names, made of the same programs on this machine.

For each: its user, its own environment, and how its entry point turns environment and command into a process.
"""

import os
import pwd
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from backend.runtime import servers
from backend.runtime.java import java_home
from backend.runtime.layout import Layout
from backend.settings import ROOT
from tests.containers.compose import Service

HEADRACE = Path("/opt/headrace")
_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


@dataclass
class Image:
    """``entry_point`` returns the command that runs in the container, as ``run_as``. Volumes belong to ``owner``."""

    owner: int
    run_as: int
    entry_point: Callable[[Service], list[str]]
    workdir: str = "/"
    environment: dict[str, str] = field(default_factory=dict)


def image_of(name: str, layout: Layout) -> Image:
    """The image by the name that the file gives it, with its version or without."""
    match name.partition(":")[0]:
        case "headrace":
            return _headrace(layout)
        case "postgres":
            return _postgres()
        case "valkey/valkey":
            nobody = pwd.getpwnam("nobody").pw_uid
            return Image(nobody, nobody, _valkey, workdir="/data")
        case "apache/kafka":
            return Image(1000, 1000, lambda service: _kafka(service, layout))
    raise LookupError(f"There is no stand-in for the image {name}.")


def java_folder(layout: Layout) -> str:
    return str(java_home(layout) / "bin")


def _headrace(layout: Layout) -> Image:
    """What the Dockerfile sets: the instructions are read from it."""
    dockerfile = (ROOT / "docker/backend.Dockerfile").read_text().replace("\\\n", " ")
    [user] = re.findall(r"^USER (\d+)$", dockerfile, re.MULTILINE)
    environment = dict(
        pair.split("=", 1) for line in re.findall(r"^ENV (.*)$", dockerfile, re.MULTILINE) for pair in shlex.split(line)
    )
    [workdir] = re.findall(r"^WORKDIR (/opt/\S+)$", dockerfile, re.MULTILINE)
    path = f"{HEADRACE}/.venv/bin:{java_folder(layout)}:{_SYSTEM_PATH}"
    return Image(int(user), int(user), lambda service: service.command, workdir, environment | {"PATH": path})


_POSTGRES = """\
set -e
data=/var/lib/postgresql/18/docker
export PGPASSWORD_FILE=/tmp/password
install --owner {user} --mode 600 "$POSTGRES_PASSWORD_FILE" $PGPASSWORD_FILE
exec setpriv --reuid {user} --regid {group} --clear-groups sh -ec '
    if [ ! -s {data}/PG_VERSION ]; then
        mkdir -p {data}
        {bin}/initdb -D {data} -U "$POSTGRES_USER" --pwfile $PGPASSWORD_FILE --auth-host scram-sha-256 --no-sync
        echo "host all all all scram-sha-256" >> {data}/pg_hba.conf
        echo "CREATE DATABASE $POSTGRES_USER" | {bin}/postgres --single -D {data} postgres
    fi
    exec {bin}/postgres -D {data} -c listen_addresses=* -c unix_socket_directories=/tmp'
"""
"""The image reads the password as root, and then creates the user's database as an ordinary user."""


def _postgres() -> Image:
    account = pwd.getpwnam(servers.postgresql_user() or pwd.getpwuid(os.getuid()).pw_name)
    script = _POSTGRES.format(
        user=account.pw_uid,
        group=account.pw_gid,
        data="/var/lib/postgresql/18/docker",
        bin=servers.postgresql_programs(),
    )
    path = f"{servers.postgresql_programs()}:{_SYSTEM_PATH}"
    return Image(account.pw_uid, 0, lambda _: ["sh", "-c", script], environment={"PATH": path})


def _valkey(service: Service) -> list[str]:
    assert service.command[0] == "valkey-server"
    return [str(servers.redis_program()), "--protected-mode", "no", *service.command[1:]]


def _kafka(service: Service, layout: Layout) -> list[str]:
    """Each variable ``KAFKA_A_B`` is the broker's property ``a.b``."""
    properties = "".join(
        f"{name.removeprefix('KAFKA_').lower().replace('_', '.')}={value}\n"
        for name, value in service.environment.items()
        if name.startswith("KAFKA_")
    )
    java = shlex.join([f"{java_folder(layout)}/java", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
    run = f"{java} -cp {shlex.quote(f'{layout.jars.resolve()}/kafka/*')}"
    script = (
        f"set -e; printf %s {shlex.quote(properties)} > /tmp/server.properties\n"
        f"{run} kafka.tools.StorageTool format --ignore-formatted --cluster-id=5L6g3nShT-eMCtK--X86sw "
        f"-c /tmp/server.properties\nexec {run} kafka.Kafka /tmp/server.properties"
    )
    return ["sh", "-c", script]
