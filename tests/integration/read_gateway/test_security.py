"""Who may read what, and that nobody may write."""

import socket
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer

from backend.apps.workspaces.models import ApiKey
from backend.apps.workspaces.services import api_key_create, api_key_revoke
from backend.kafka.server.scram import DIGESTS
from backend.runtime.layout import Layout
from tests import factories
from tests.gateways import Gateways, Login, make_collection, make_key, reading_workspace
from tests.integration.read_gateway.clients import (
    admin,
    config,
    java_tool,
    properties,
    received,
    values,
    wait_until_seen,
)
from tests.integration.read_gateway.conftest import Reading
from tests.waiting import LIMIT_SECONDS, wait_until

MECHANISMS = ("PLAIN", *DIGESTS)


def is_refused(nodes: Gateways, login: Login) -> bool:
    errors: list[KafkaError] = []
    client = AdminClient({"bootstrap.servers": nodes.bootstrap, "error_cb": errors.append, **login.librdkafka()})
    wait_until(lambda: client.poll(0.2) is None or errors)
    return any(error.code() == KafkaError._AUTHENTICATION for error in errors)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_mechanism_signs_in_with_every_client(
    nodes: Gateways, reading: Reading, project_layout: Layout, tmp_path: Path, mechanism: str
) -> None:
    collection = reading.collection(1)
    collection.write(values(20))
    make_key(reading.workspace)  # a second key, which the gateway has to tell apart
    login = Login(reading.login.user, reading.login.password, mechanism)
    wait_until_seen(nodes, login, collection)
    consumer = Consumer(config(nodes, login))
    consumer.subscribe([collection.topic])
    assert received(consumer, 20) == Counter(values(20))
    consumer.close()
    python = KafkaConsumer(bootstrap_servers=nodes.bootstrap.split(","), **login.kafka_python())
    assert collection.topic in python.topics()
    python.close()
    listed = java_tool(
        project_layout,
        "org.apache.kafka.tools.TopicCommand",
        *("--bootstrap-server", nodes.bootstrap, "--command-config", properties(login, tmp_path), "--describe"),
    )
    assert f"Topic: {collection.topic}\t" in listed.stdout, listed.stdout + listed.stderr


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_wrong_credentials_are_refused(nodes: Gateways, reading: Reading, mechanism: str) -> None:
    other, _ = reading_workspace()
    key = reading.login.password
    for login in (
        Login(reading.login.user, "hr_wrong", mechanism),
        Login("nobody", key, mechanism),
        Login(other.slug, key, mechanism),
        Login(reading.login.user, make_key(reading.workspace, "ingest"), mechanism),
    ):
        assert is_refused(nodes, login), login.user


def test_nothing_is_answered_before_signing_in(nodes: Gateways, reading: Reading) -> None:
    collection = reading.collection()
    wait_until_seen(nodes, reading.login, collection)
    host, port = nodes[0].address.split(":")
    with socket.create_connection((host, int(port)), 30) as client:
        # Metadata version 1 for all topics, correlation id 7.
        client.sendall(bytes.fromhex("0000000e0003000100000007ffffffffffff"))
        assert client.recv(100) == b""


def test_a_workspace_sees_nothing_of_another(nodes: Gateways, reading: Reading) -> None:
    theirs, login = reading_workspace()
    own, other = reading.collection(), make_collection(theirs)
    same = make_collection(theirs, name=own.topic)
    other.write(values(5))
    same.write([b"theirs"])
    own.write([b"ours"])
    wait_until_seen(nodes, reading.login, own)
    wait_until_seen(nodes, login, other, same)
    assert admin(nodes, reading.login).list_topics(timeout=LIMIT_SECONDS).topics.keys() == {own.topic}
    # The same names, and even the same group, are another workspace's own.
    for who, expected in ((reading.login, b"ours"), (login, b"theirs")):
        consumer = Consumer(config(nodes, who, group_id="shared"))
        consumer.subscribe([own.topic])
        assert received(consumer, 1) == Counter([expected])
        consumer.close()
    stranger = Consumer(config(nodes, reading.login))
    stranger.subscribe([other.topic])
    message = None

    def answered() -> bool:
        nonlocal message
        message = stranger.poll(0.5)
        return message is not None

    wait_until(answered)
    assert message is not None
    assert message.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    stranger.close()
    client = admin(nodes, reading.login)  # its requests end with it
    listed = client.list_consumer_groups().result(LIMIT_SECONDS)
    assert not listed.errors
    assert {group.group_id for group in listed.valid} == {"shared"}


def test_a_revoked_key_is_cut_off(nodes: Gateways, reading: Reading) -> None:
    collection = reading.collection(1)
    collection.write(values(5))
    wait_until_seen(nodes, reading.login, collection)
    errors: list[KafkaError] = []
    consumer = Consumer(config(nodes, reading.login, error_cb=errors.append, enable_auto_commit=False))
    # Not of a group, which a consumer that is refused would try to leave until its session has ended.
    consumer.assign([TopicPartition(collection.topic, 0, OFFSET_BEGINNING)])
    assert received(consumer, 5) == Counter(values(5))
    key = ApiKey.objects.get(workspace=reading.workspace)
    api_key_revoke(key=key, actor=factories.admin_of(reading.workspace))
    wait_until(lambda: consumer.poll(0.2) or any(e.code() == KafkaError._AUTHENTICATION for e in errors))
    consumer.close()


def test_keys_are_stored_as_hashes_and_verifiers_only(reading: Reading) -> None:
    key, text = api_key_create(
        workspace=reading.workspace, actor=factories.admin_of(reading.workspace), name="k", scopes=["read"]
    )
    assert set(key.scram) == set(DIGESTS)
    assert text not in str(ApiKey.objects.filter(pk=key.pk).values())


@pytest.mark.parametrize("idempotent", [False, True])
def test_producing_is_refused_with_a_reason(nodes: Gateways, reading: Reading, idempotent: bool) -> None:
    collection = reading.collection(1)
    wait_until_seen(nodes, reading.login, collection)
    producer = Producer(
        {"bootstrap.servers": nodes.bootstrap, "enable.idempotence": idempotent, **reading.login.librdkafka()}
    )
    outcomes: list[KafkaError | None] = []
    producer.produce(collection.topic, b"x", on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(LIMIT_SECONDS) == 0
    assert outcomes[0] is not None
    assert outcomes[0].code() == KafkaError.POLICY_VIOLATION


def test_javas_producer_is_told_why(nodes: Gateways, reading: Reading, project_layout: Layout, tmp_path: Path) -> None:
    collection = reading.collection(1)
    wait_until_seen(nodes, reading.login, collection)
    lines = tmp_path / "lines"
    lines.write_text("x\n")
    done = java_tool(
        project_layout,
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", collection.topic, "--num-records", "1", "--record-size", "10", "--throughput", "-1"),
        *("--producer.config", properties(reading.login, tmp_path)),
        *("--producer-props", f"bootstrap.servers={nodes.bootstrap}"),
    )
    assert "The read gateway accepts no records" in done.stdout + done.stderr
