"""Encrypted connections."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient

from backend.runtime.layout import Layout
from tests.certificates import Authority
from tests.gateways import Gateways, Login, gateways
from tests.infra import VAR
from tests.integration.read_gateway.clients import config, java_tool, properties, received, wait_until_seen
from tests.integration.read_gateway.conftest import Reading


@pytest.fixture(scope="module")
def secure(database_url: str) -> Iterator[tuple[Gateways, Authority]]:
    folder = VAR / "gateway-tls"
    folder.mkdir()
    authority = Authority(folder)
    certificate, key = authority.issue("gateway")
    with gateways(
        folder, database_url, 1, ca=str(authority.certificate), certificate=str(certificate), private_key=str(key)
    ) as nodes:
        yield nodes, authority


def test_tls(secure: tuple[Gateways, Authority], reading: Reading, project_layout: Layout, tmp_path: Path) -> None:
    nodes, authority = secure
    collection = reading.collection(1)
    collection.write([b"x" * 300_000, b"y"])
    user, password = reading.login.user, reading.login.password
    login = Login(user, password, "SCRAM-SHA-512", "SASL_SSL", str(authority.certificate))
    wait_until_seen(nodes, login, collection)
    consumer = Consumer(config(nodes, login))
    consumer.subscribe([collection.topic])
    assert received(consumer, 2) == Counter([b"x" * 300_000, b"y"])
    consumer.close()
    settings = properties(login, tmp_path, "ssl.endpoint.identification.algorithm=https")
    listed = java_tool(
        project_layout,
        "org.apache.kafka.tools.TopicCommand",
        *("--bootstrap-server", nodes.bootstrap, "--command-config", settings, "--list"),
    )
    assert collection.topic in listed.stdout, listed.stderr
    plain = AdminClient({"bootstrap.servers": nodes.bootstrap, **reading.login.librdkafka()})
    with pytest.raises(KafkaException):
        plain.list_topics(timeout=3)
