"""Three real brokers, and proxies in front of them in several arrangements."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

from backend.runtime.java import java_home
from backend.runtime.layout import Layout
from tests.infra import VAR
from tests.integration.kafka_proxy.clients import make_topic
from tests.kafka_cluster import KafkaCluster
from tests.kafka_proxies import Proxies, proxies


@pytest.fixture(scope="package")
def cluster(project_layout: Layout) -> Iterator[KafkaCluster]:
    running = KafkaCluster(
        Path(mkdtemp(prefix="cluster-", dir=VAR)),
        project_layout.jars,
        java_home(project_layout),
        client_auth="requested",
        idle_ms=8000,
    )
    try:
        running.start()
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="package")
def one(cluster: KafkaCluster) -> Iterator[Proxies]:
    with proxies(cluster, VAR / "one", 1) as running:
        yield running


@pytest.fixture(scope="package")
def three(cluster: KafkaCluster) -> Iterator[Proxies]:
    with proxies(cluster, VAR / "three", 3) as running:
        yield running


@pytest.fixture(scope="package")
def racked(cluster: KafkaCluster) -> Iterator[Proxies]:
    with proxies(cluster, VAR / "racked", 3, racks=True) as running:
        yield running


@pytest.fixture(params=["one", "three", "racked"])
def front(request: pytest.FixtureRequest) -> Proxies:
    """Every arrangement of proxies in front of the cluster."""
    running: Proxies = request.getfixturevalue(request.param)
    return running


@pytest.fixture
def topic(cluster: KafkaCluster) -> str:
    return make_topic(cluster)
