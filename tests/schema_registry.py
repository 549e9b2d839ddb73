"""A real schema registry with Confluent's API: Apicurio, which keeps everything in memory."""

import shutil
from collections.abc import Iterator

import pytest

from backend.runtime.java import java_home
from backend.runtime.layout import Layout
from backend.settings import ROOT
from tests.distributions import distribution
from tests.exclusive import exclusive
from tests.infra import REGISTRY_PORT, VAR, Server
from tests.ports import free_ports
from tests.waiting import answers

ADDRESS = f"http://127.0.0.1:{REGISTRY_PORT}/apis/ccompat/v7"

_OLDEST_JAVA = 21
_IVY = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="headrace" module="apicurio"/>
  <configurations><conf name="apicurio"/></configurations>
  <dependencies>
    <dependency org="io.apicurio" name="apicurio-registry-app" rev="{APICURIO_VERSION}" conf="apicurio->master"
                transitive="false">
      <artifact name="apicurio-registry-app" type="tar.gz" ext="tar.gz" m:classifier="all"/>
    </dependency>
  </dependencies>
</ivy-module>
"""
_JVM = ["-Xmx256m", "-Xss512k", "-XX:MaxMetaspaceSize=192m"]


@pytest.fixture(scope="session")
def schema_registry() -> Iterator[Server]:
    layout = Layout(ROOT / "var")
    with exclusive("downloads"):
        layout.create()
        home = java_home(layout, _OLDEST_JAVA)
    folder = VAR / "apicurio"
    shutil.unpack_archive(distribution("apicurio", _IVY, layout, home), folder)
    addresses = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": REGISTRY_PORT,
        "quarkus.management.host": "127.0.0.1",
        "quarkus.management.port": free_ports(1)[0],
    }
    options = [f"-D{name}={value}" for name, value in addresses.items()]
    jar = next(folder.rglob("quarkus-run.jar"))
    server = Server(
        "apicurio", [str(home / "bin/java"), *_JVM, *options, "-jar", str(jar)], lambda: answers(f"{ADDRESS}/subjects")
    )
    server.start()
    yield server
    server.stop()
