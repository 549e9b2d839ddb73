"""Headrace's own Kafka cluster with logins and encryption: every client connects with the same settings."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from pydantic import SecretStr, ValidationError
from pyspark.sql import SparkSession

from backend.kafka.client.topics import Topic, topic_create, topics_reconcile
from backend.runtime.java import java_home
from backend.runtime.layout import Layout
from backend.settings import KafkaSettings
from spark_jobs.kafka_options import kafka_options
from tests.infra import VAR
from tests.kafka_cluster import USERS, KafkaCluster
from tests.waiting import LIMIT_SECONDS, wait_until

TOPIC = "own"


@pytest.fixture(scope="module")
def cluster(project_layout: Layout) -> Iterator[KafkaCluster]:
    folder = Path(mkdtemp(prefix="own-kafka-", dir=VAR))
    running = KafkaCluster(folder, project_layout.jars, java_home(project_layout), size=1, client_auth="required")
    try:
        running.start()
        running.allow_all("alice", "bob")
        topic_create(AdminClient({"bootstrap.servers": running.bootstrap()}), Topic(TOPIC, 1, 1))
        yield running
    finally:
        running.stop()


def encryption(cluster: KafkaCluster) -> dict[str, Any]:
    """With the certificate of alice, and its key in the same file."""
    certificate, key = cluster.authority.issue("alice")
    both = certificate.with_suffix(".both.pem")
    both.write_text(key.read_text() + certificate.read_text())
    return {"tls": True, "ca": str(cluster.authority.certificate), "certificate": str(both)}


def login(mechanism: str, user: str = "alice") -> dict[str, Any]:
    return {"sasl_mechanism": mechanism, "username": user, "password": SecretStr(USERS[user])}


LOGINS = ["certificate", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "SCRAM-SHA-512 and certificate"]


def settings(cluster: KafkaCluster, way: str) -> KafkaSettings:
    if way == "certificate":
        return KafkaSettings(bootstrap_servers=cluster.bootstrap("SSL"), **encryption(cluster))
    mechanism, _, encrypted = way.partition(" and ")
    if encrypted:
        address = cluster.bootstrap("SASL_SSL")
        return KafkaSettings(bootstrap_servers=address, **login(mechanism), **encryption(cluster))
    return KafkaSettings(bootstrap_servers=cluster.bootstrap("SASL_PLAINTEXT"), **login(mechanism))


@pytest.mark.parametrize("way", LOGINS)
def test_librdkafka_and_spark_connect_alike(cluster: KafkaCluster, spark: SparkSession, way: str) -> None:
    kafka = settings(cluster, way)
    value = way.encode()
    producer = Producer(kafka.client())
    producer.produce(TOPIC, value)
    assert producer.flush(LIMIT_SECONDS) == 0
    options = kafka_options(kafka)
    read = spark.read.format("kafka").options(**options).option("subscribe", TOPIC).load().collect()
    assert value in [bytes(row["value"]) for row in read]
    written = spark.createDataFrame([(bytearray(b"of Spark: " + value),)], "value binary")
    written.write.format("kafka").options(**options).option("topic", TOPIC).save()
    assert b"of Spark: " + value in values(kafka)


def values(kafka: KafkaSettings) -> list[bytes]:
    """All values in the topic."""
    start = {"group.id": "test", "auto.offset.reset": "earliest", "enable.partition.eof": True}
    consumer = Consumer(kafka.client() | start)
    consumer.subscribe([TOPIC])
    read: list[bytes] = []
    try:
        while (record := consumer.poll(LIMIT_SECONDS)) is not None and record.error() is None:
            read.append(record.value() or b"")
    finally:
        consumer.close()
    return read


def test_a_password_with_quotes_and_backslashes_is_one_argument() -> None:
    kafka = KafkaSettings(sasl_mechanism="PLAIN", username="alice", password=SecretStr('a" b="c\\'))
    assert kafka_options(kafka)["kafka.sasl.jaas.config"].endswith('username="alice" password="a\\" b=\\"c\\\\";')


def test_the_options_of_a_login_by_token() -> None:
    kafka = KafkaSettings(
        tls=True,
        sasl_mechanism="OAUTHBEARER",
        username="lane",
        password=SecretStr("s3cret"),
        oauth_token_url="https://sso.example.com/token",
        oauth_scope="kafka",
    )
    options = kafka_options(kafka)
    assert options["kafka.security.protocol"] == kafka.client()["security.protocol"] == "SASL_SSL"
    assert 'clientId="lane" clientSecret="s3cret" scope="kafka"' in options["kafka.sasl.jaas.config"]
    AdminClient(kafka.client())  # librdkafka knows every property


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"sasl_mechanism": "PLAIN", "username": "alice"}, "HEADRACE_KAFKA_PASSWORD"),
        ({"sasl_mechanism": "OAUTHBEARER", "username": "a", "password": SecretStr("b")}, "OAUTH_TOKEN_URL"),
        ({"ca": "/etc/ca.pem"}, "HEADRACE_KAFKA_TLS"),
    ],
)
def test_settings_that_do_not_belong_together_are_refused(given: dict[str, Any], error: str) -> None:
    with pytest.raises(ValidationError, match=error):
        KafkaSettings(**given)


def test_existing_topics_get_their_config_and_what_cannot_be_changed_is_named(cluster: KafkaCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap()})
    assert topics_reconcile(admin, [Topic("kept", 1, 1, {"retention.ms": "1000000"})]) == []
    problems = topics_reconcile(admin, [Topic("kept", 2, 3, {"retention.ms": "2000000"})])
    assert "1 partition(s)" in problems[0]
    assert "HEADRACE_TOPIC_PARTITIONS asks for 2" in problems[0]
    assert "1 replica(s)" in problems[1]
    resource = ConfigResource(ResourceType.TOPIC, "kept")
    # A broker tells the new value once the controller's change has reached it.
    wait_until(lambda: admin.describe_configs([resource])[resource].result()["retention.ms"].value == "2000000")
