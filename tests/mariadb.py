"""A MariaDB server for tests, from Debian's packages mariadb-server-core and mariadb-client-core."""

import contextlib
import getpass
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pymysql
import pytest

from tests.infra import PASSWORD, VAR, Server
from tests.ports import free_ports

(MARIADB_PORT,) = free_ports(1)
USER, DATABASE = "headrace", "shop"


def connected(port: int = MARIADB_PORT) -> pymysql.Connection:
    return pymysql.connect(
        host="127.0.0.1", port=port, user=USER, password=PASSWORD, database=DATABASE, charset="utf8mb4", autocommit=True
    )


def _ready(port: int) -> bool:
    with contextlib.suppress(pymysql.Error):
        connected(port).close()
        return True
    return False


@contextmanager
def running_mariadb(name: str, port: int, *options: str) -> Iterator[Server]:
    program = shutil.which("mariadbd", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.fail("MariaDB is missing: apt-get install mariadb-server-core mariadb-client-core.")
    data = VAR / name
    user = f"--user={getpass.getuser()}"
    install = ["mariadb-install-db", "--no-defaults", f"--datadir={data}", user, "--skip-test-db"]
    subprocess.run(install, check=True, capture_output=True)
    setup = VAR / f"{name}.sql"
    setup.write_text(
        f"CREATE DATABASE IF NOT EXISTS {DATABASE} CHARACTER SET utf8mb4;\n"
        f"CREATE USER IF NOT EXISTS {USER}@'%' IDENTIFIED BY '{PASSWORD}';\n"
        f"GRANT ALL ON *.* TO {USER}@'%' WITH GRANT OPTION;\n"
    )
    command = [program, "--no-defaults", f"--datadir={data}", user, "--bind-address=127.0.0.1", "--skip-name-resolve"]
    command += [f"--port={port}", f"--socket={data}/socket", f"--init-file={setup}", *options]
    command += ["--innodb-buffer-pool-size=32M", "--innodb-flush-log-at-trx-commit=0"]
    server = Server(name, command, lambda: _ready(port))
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[Server]:
    with running_mariadb("mariadb", MARIADB_PORT) as server:
        yield server
