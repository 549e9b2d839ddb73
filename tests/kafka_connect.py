"""A real Kafka Connect worker in distributed mode, with the connectors that read and write files."""

import uuid
from collections.abc import Iterator

import pytest

from backend.runtime.java import java_home
from backend.runtime.layout import Layout
from backend.settings import ROOT
from tests.distributions import distribution_files
from tests.exclusive import exclusive
from tests.infra import KAFKA, VAR, Server
from tests.ports import free_ports
from tests.waiting import answers

_IVY = """<ivy-module version="2.0">
  <info organisation="headrace" module="kafka_connect"/>
  <configurations><conf name="kafka_connect"/></configurations>
  <dependencies>
    <dependency org="org.apache.kafka" name="connect-runtime" rev="{KAFKA_VERSION}" conf="kafka_connect->default"/>
    <dependency org="org.apache.kafka" name="connect-file" rev="{KAFKA_VERSION}" conf="kafka_connect->default"/>
  </dependencies>
</ivy-module>
"""
[PORT] = free_ports(1)
URL = f"http://127.0.0.1:{PORT}"
FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
FILE_SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"


@pytest.fixture(scope="session")
def kafka_connect(kafka: Server) -> Iterator[Server]:
    layout = Layout(ROOT / "var")
    with exclusive("downloads"):
        layout.create()
        home = java_home(layout)
    jars = distribution_files("kafka_connect", _IVY, layout, home)
    properties = VAR / "kafka-connect.properties"
    suffix = uuid.uuid4().hex
    settings = {
        "bootstrap.servers": KAFKA,
        "group.id": f"connect-{suffix}",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "listeners": f"http://127.0.0.1:{PORT}",
        "rest.advertised.host.name": "127.0.0.1",
        "plugin.discovery": "hybrid_warn",
        "scheduled.rebalance.max.delay.ms": 0,
    }
    for store in ("config", "offset", "status"):
        settings |= {f"{store}.storage.topic": f"connect-{store}-{suffix}"}
        settings |= {f"{store}.storage.replication.factor": 1}
    settings |= {"offset.storage.partitions": 1, "status.storage.partitions": 1}
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    classpath = ":".join([*map(str, jars), f"{layout.jars}/kafka/*"])  # the broker's jars have what it logs with
    program = ["org.apache.kafka.connect.cli.ConnectDistributed", str(properties)]
    server = Server(
        "kafka-connect",
        [str(home / "bin/java"), "-Xmx256m", "-cp", classpath, *program],
        lambda: answers(f"{URL}/connectors"),
    )
    server.start()
    yield server
    server.stop()
