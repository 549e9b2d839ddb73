"""The installation on a Kafka cluster of the operator's: three brokers, which ask for TLS, client certificates and a
login. The short form is ``tests/integration/data_plane/test_own_kafka.py``, where each client connects to such ones."""

import shutil
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

import pytest
from confluent_kafka.admin import AdminClient

from backend.domain import routing
from backend.runtime.java import java_home
from backend.runtime.layout import Layout
from tests.e2e.test_messages import TRANSFORMS, ids, name, order
from tests.infra import QUICK_INSTALLATION
from tests.installation import Installation, temporary_installation
from tests.kafka_cluster import USERS, KafkaCluster
from tests.receiver import Receiver
from tests.waiting import LIMIT_SECONDS, wait_until

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cluster(project_layout: Layout) -> Iterator[KafkaCluster]:
    folder = Path(mkdtemp(prefix="headrace-own-kafka-"))
    running = KafkaCluster(folder, project_layout.jars, java_home(project_layout), client_auth="required")
    try:
        running.start()
        running.allow_all("alice")
        yield running
    finally:
        running.stop()
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def secured(project_layout: Layout, cluster: KafkaCluster) -> Iterator[Installation]:
    certificate, key = cluster.authority.issue("alice")
    both = certificate.with_suffix(".both.pem")
    both.write_text(key.read_text() + certificate.read_text())
    with temporary_installation("own-kafka", project_layout.jars) as installation:
        installation.environment = QUICK_INSTALLATION | {
            "HEADRACE_KAFKA_BOOTSTRAP_SERVERS": cluster.bootstrap("SASL_SSL"),
            "HEADRACE_KAFKA_TLS": "true",
            "HEADRACE_KAFKA_CA": str(cluster.authority.certificate),
            "HEADRACE_KAFKA_CERTIFICATE": str(both),
            "HEADRACE_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
            "HEADRACE_KAFKA_USERNAME": "alice",
            "HEADRACE_KAFKA_PASSWORD": USERS["alice"],
            "HEADRACE_TOPIC_REPLICATION": "3",
            "HEADRACE_TOPIC_MIN_INSYNC_REPLICAS": "2",
        }
        installation.up()
        yield installation


def test_messages_flow_while_a_broker_is_lost(secured: Installation, cluster: KafkaCluster, inbox: Receiver) -> None:
    assert "kafka" not in {process["name"] for process in secured.facts["processes"]}
    topics = AdminClient({"bootstrap.servers": cluster.bootstrap()}).list_topics(timeout=LIMIT_SECONDS).topics
    assert {len(part.replicas) for part in topics[routing.INPUT].partitions.values()} == {3}
    pipelines = [secured.publish_pipeline(name(), inbox.url, transforms=steps) for steps in ([], TRANSFORMS)]
    sent: set[str] = set()

    def accepted(pipeline: str, number: int) -> bool:
        """A request that Kafka does not acknowledge in time is answered with 503."""
        status, answer = secured.post(pipeline, order(number))
        if status == 202:
            sent.update(answer["message_ids"])
        return status == 202

    def send() -> None:
        for pipeline in pipelines:
            for number in range(50):
                wait_until(partial(accepted, pipeline, number))

    send()
    wait_until(lambda: sent <= set(ids(inbox)), 90)
    cluster.brokers[1].stop(signal.SIGKILL)
    send()
    wait_until(lambda: sent <= set(ids(inbox)), 120)


def test_the_password_is_in_no_log(secured: Installation) -> None:
    logs = list(secured.var.rglob("*.log"))
    assert len(logs) > 5
    assert not [log for log in logs if USERS["alice"] in log.read_text(errors="replace")]
