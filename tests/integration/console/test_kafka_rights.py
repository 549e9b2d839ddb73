"""What writes to Headrace's own Kafka cluster while the login has no right to, and once it has."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp

import pytest
from confluent_kafka.admin import AdminClient

from backend.apps.deliveries.redelivery import Redelivery
from backend.apps.sql import rows
from backend.apps.sql.errors import SqlError
from backend.domain import routing
from backend.domain.connect_sql import expressions as e
from backend.domain.connect_sql import statements as s
from backend.domain.connect_sql import types as t
from backend.domain.connect_sql.sources import Source
from backend.kafka.client.topics import Topic, topic_create
from backend.runtime.java import java_home
from backend.runtime.layout import Layout
from backend.settings import platform_settings
from tests import factories
from tests.infra import VAR, Server
from tests.integration.console.test_dead_letters import waiting
from tests.integration.kafka_ends import end_offset
from tests.kafka_cluster import USERS, KafkaCluster
from tests.waiting import wait_until

TOPICS = ("rows", routing.ADAPTED)


@pytest.fixture
def cluster(project_layout: Layout, monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaCluster]:
    """The platform's own, where its user may not write yet."""
    running = KafkaCluster(Path(mkdtemp(prefix="rights-", dir=VAR)), project_layout.jars, java_home(project_layout), 1)
    try:
        running.start()
        for topic in TOPICS:
            topic_create(AdminClient({"bootstrap.servers": running.bootstrap()}), Topic(topic, 1, 1))
        monkeypatch.setenv("HEADRACE_KAFKA_BOOTSTRAP_SERVERS", running.bootstrap("SASL_PLAINTEXT"))
        monkeypatch.setenv("HEADRACE_KAFKA_SASL_MECHANISM", "PLAIN")
        monkeypatch.setenv("HEADRACE_KAFKA_USERNAME", "bob")
        monkeypatch.setenv("HEADRACE_KAFKA_PASSWORD", USERS["bob"])
        _forget()
        yield running
    finally:
        running.stop()
        monkeypatch.undo()
        _forget()


def _forget() -> None:
    platform_settings.cache_clear()
    rows._producer.cache_clear()


def test_rows_are_inserted_once_the_login_may_write(cluster: KafkaCluster) -> None:
    source = Source("rows", s.Kind.STREAM, "rows", (s.ColumnDefinition("a", t.INTEGER),))
    statement = s.InsertValues("rows", (), (e.Literal(1),))
    for _ in range(2):
        with pytest.raises(SqlError, match=r"Kafka did not take the row: .*uthorization failed"):
            rows.row_insert(source, statement)
    cluster.allow_all("bob")

    def is_inserted() -> bool:
        with suppress(SqlError):
            rows.row_insert(source, statement)
            return True
        return False

    wait_until(is_inserted, interval=1)
    assert end_offset("rows", bootstrap=cluster.bootstrap()) == 1


@pytest.mark.django_db(transaction=True)
def test_dead_letters_are_redelivered_once_the_login_may_write(
    cluster: KafkaCluster, redis_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = factories.make_pipeline(factories.make_workspace())
    stop = threading.Event()
    redelivering = threading.Thread(target=Redelivery().run, args=(stop,))
    redelivering.start()
    try:
        waiting(pipeline.pk, 1)
        wait_until(lambda: "Redelivery is delayed" in caplog.text)
        cluster.allow_all("bob")
        # What was claimed before is claimed again after minutes.
        wait_until(
            lambda: waiting(pipeline.pk, 1) and end_offset(routing.ADAPTED, bootstrap=cluster.bootstrap()), interval=1
        )
    finally:
        stop.set()
        redelivering.join()
