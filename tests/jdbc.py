"""JDBC drivers as an operator installs them, and an H2 server, which only its driver reaches."""

import subprocess
from collections.abc import Iterator

import pytest

from backend.runtime.health import is_listening
from backend.runtime.java import java_home
from backend.runtime.layout import Layout
from backend.settings import ROOT
from tests.distributions import distribution_files
from tests.exclusive import exclusive
from tests.infra import JDBC_DRIVERS, QUICK_JAVA, VAR, Server
from tests.ports import free_ports

[H2_PORT] = free_ports(1)
H2_URL = f"jdbc:h2:tcp://127.0.0.1:{H2_PORT}/tests"
H2_USER, H2_PASSWORD = "sa", "planted-password-of-h2"

_IVY = """<ivy-module version="2.0">
  <info organisation="headrace" module="jdbc"/>
  <configurations><conf name="jdbc"/></configurations>
  <dependencies>
    <dependency org="org.postgresql" name="postgresql" rev="{POSTGRESQL_JDBC_VERSION}" conf="jdbc->master"
                transitive="false"/>
    <dependency org="com.microsoft.sqlserver" name="mssql-jdbc" rev="{MSSQL_JDBC_VERSION}" conf="jdbc->master"
                transitive="false"/>
    <dependency org="com.h2database" name="h2" rev="{H2_VERSION}" conf="jdbc->master" transitive="false"/>
  </dependencies>
</ivy-module>
"""


@pytest.fixture(scope="session")
def jdbc_drivers() -> str:
    """The Java that runs them. The folder is the one that the settings name."""
    layout = Layout(ROOT / "var")
    with exclusive("downloads"):
        layout.create()
        home = java_home(layout)
    JDBC_DRIVERS.mkdir(exist_ok=True)
    for jar in distribution_files("jdbc", _IVY, layout, home):
        link = JDBC_DRIVERS / jar.name
        if not link.exists():
            link.symlink_to(jar)
    return str(home / "bin/java")


@pytest.fixture(scope="session")
def h2(jdbc_drivers: str) -> Iterator[Server]:
    command = [jdbc_drivers, *QUICK_JAVA.split(), "-cp", f"{JDBC_DRIVERS}/*", "org.h2.tools.Server"]
    options = ["-tcp", "-tcpPort", str(H2_PORT), "-ifNotExists", "-baseDir", str(VAR / "h2")]
    server = Server("h2", [*command, *options], lambda: is_listening(f"127.0.0.1:{H2_PORT}"))
    server.start()
    yield server
    server.stop()


def h2_run(java: str, statements: str, url: str = H2_URL) -> None:
    """Runs statements at the H2 server."""
    login = ["-url", url, "-user", H2_USER, "-password", H2_PASSWORD]
    shell = [java, "-cp", f"{JDBC_DRIVERS}/*", "org.h2.tools.Shell"]
    subprocess.run([*shell, *login, "-sql", statements], check=True, capture_output=True, timeout=60)
