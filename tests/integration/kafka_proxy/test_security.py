"""TLS, authentication and authorization through proxies."""

import base64
import json
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.infra import VAR
from tests.integration.kafka_proxy.clients import make_topic, received, send, values
from tests.kafka_cluster import USERS, KafkaCluster
from tests.kafka_proxies import Proxies, proxies
from tests.waiting import LIMIT_SECONDS, wait_until

MECHANISMS = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}


@pytest.fixture(scope="module")
def users(cluster: KafkaCluster) -> None:
    """Alice has all rights on topics that begin with "alice"; Bob has none."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap()})
    for mechanism in MECHANISMS.values():  # a request may change each user only once
        information = ScramCredentialInfo(mechanism, 4096)
        changes = [UserScramCredentialUpsertion(name, information, key.encode()) for name, key in USERS.items()]
        for changed in admin.alter_user_scram_credentials(changes).values():
            changed.result(LIMIT_SECONDS)
    rights = [
        AclBinding(kind, name, pattern, "User:alice", "*", AclOperation.ALL, AclPermissionType.ALLOW)
        for kind, name, pattern in [
            (ResourceType.TOPIC, "alice", ResourcePatternType.PREFIXED),
            (ResourceType.GROUP, "*", ResourcePatternType.LITERAL),
            (ResourceType.TRANSACTIONAL_ID, "*", ResourcePatternType.LITERAL),
        ]
    ]
    for created in admin.create_acls(rights).values():
        created.result(LIMIT_SECONDS)


@pytest.fixture
def alices(cluster: KafkaCluster, users: None) -> str:
    return make_topic(cluster, prefix="alice")


@pytest.fixture(scope="module")
def guarded(cluster: KafkaCluster) -> Iterator[Proxies]:
    """Proxies in front of the listener that requires authentication."""
    certificate, key = cluster.authority.issue("proxy")
    tls = {"authority": str(cluster.authority.certificate), "certificate": str(certificate), "private_key": str(key)}
    tokens = {"contact_points": cluster.bootstrap("SSL").split(","), "tls": tls, "lifetime_seconds": 20}
    with proxies(cluster, VAR / "guarded", 3, listener="SASL_PLAINTEXT", sasl={"delegation_tokens": tokens}) as nodes:
        yield nodes


def sasl(mechanism: str, user: str, password: str = "") -> dict[str, Any]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password or USERS[user],
    }


@pytest.mark.parametrize("mechanism", ["PLAIN", *MECHANISMS])
def test_users_sign_in_and_keep_their_rights(guarded: Proxies, alices: str, mechanism: str) -> None:
    alice, bob = sasl(mechanism, "alice"), sasl(mechanism, "bob")
    send(guarded.bootstrap, alices, values(300), **alice)
    assert received(guarded.bootstrap, alices, 300, **alice) == Counter(values(300))
    refused: list[Any] = []
    producer = Producer({"bootstrap.servers": guarded.bootstrap, **bob})
    producer.produce(alices, b"x", on_delivery=lambda error, _: refused.append(error))
    producer.flush(LIMIT_SECONDS)
    assert refused[0].name() == "TOPIC_AUTHORIZATION_FAILED"
    admin = AdminClient({"bootstrap.servers": guarded.bootstrap, **bob})
    assert alices not in admin.list_topics(timeout=LIMIT_SECONDS).topics


@pytest.mark.parametrize("mechanism", ["PLAIN", *MECHANISMS])
def test_a_wrong_password_is_refused(guarded: Proxies, users: None, mechanism: str) -> None:
    errors: list[Any] = []
    config = sasl(mechanism, "alice", "wrong") | {"bootstrap.servers": guarded.bootstrap, "error_cb": errors.append}
    client = AdminClient(config)
    with pytest.raises(KafkaException):
        client.list_topics(timeout=3)
    wait_until(lambda: client.poll(0.1) or any(error.name() == "_AUTHENTICATION" for error in errors))
    for proxy in guarded:
        assert "wrong" not in proxy.log.read_text()


def unsecured_token(user: str, seconds: float = 600) -> str:
    """A token that brokers without a token endpoint accept: the unsecured JWS of RFC 7515. They reject one of the
    future, and round its time to milliseconds."""
    now = time.time()
    parts = [{"alg": "none"}, {"sub": user, "iat": now - 1, "exp": now + seconds}]
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join([*encoded, ""])


def test_users_sign_in_with_a_bearer_token(guarded: Proxies, alices: str) -> None:
    alice = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (unsecured_token("alice"), time.time() + 600),
    }
    send(guarded.bootstrap, alices, values(300), **alice)
    assert received(guarded.bootstrap, alices, 300, **alice) == Counter(values(300))


def test_tokens_are_renewed_while_a_client_stays(guarded: Proxies, alices: str) -> None:
    """Tokens expire after 20 seconds here; brokers close connections that have not re-authenticated by then."""
    producer = Producer({"bootstrap.servers": guarded.bootstrap, "linger.ms": 0, **sasl("SCRAM-SHA-512", "alice")})
    failed: list[Any] = []
    lost_before = sum(proxy.metric("headrace_proxy_broker_failures_total") for proxy in guarded)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        producer.produce(alices, b"x", on_delivery=lambda error, _: error and failed.append(error))
        producer.poll(0.1)
    assert producer.flush(LIMIT_SECONDS) == 0
    assert not failed, failed[0]
    assert sum(proxy.metric("headrace_proxy_broker_failures_total") for proxy in guarded) == lost_before, [
        proxy.log.read_text()[-2000:] for proxy in guarded
    ]
    created = sum(proxy.log.read_text().count("delegation token was created for alice") for proxy in guarded)
    assert created >= 2


def test_without_tokens_scram_is_not_offered_in_front_of_several_brokers(cluster: KafkaCluster, users: None) -> None:
    with proxies(cluster, VAR / "no-tokens", 1, listener="SASL_PLAINTEXT") as nodes:
        errors: list[Any] = []
        config = sasl("SCRAM-SHA-256", "alice") | {"bootstrap.servers": nodes.bootstrap, "error_cb": errors.append}
        client = AdminClient(config)
        with pytest.raises(KafkaException):
            client.list_topics(timeout=3)
        wait_until(lambda: client.poll(0.1) or any("mechanism" in error.str().lower() for error in errors))


def test_tls_on_both_sides(cluster: KafkaCluster, topic: str) -> None:
    certificate, key = cluster.authority.issue("front")
    authority = str(cluster.authority.certificate)
    own, own_key = cluster.authority.issue("proxy")
    tls = {
        "clients": {"certificate": str(certificate), "private_key": str(key), "client_authority": authority},
        "brokers": {"authority": authority, "certificate": str(own), "private_key": str(own_key)},
    }
    with proxies(cluster, VAR / "tls", 2, listener="SSL", tls=tls) as nodes:
        mine, my_key = cluster.authority.issue("carol")
        known = {
            "security.protocol": "SSL",
            "ssl.ca.location": authority,
            "ssl.certificate.location": str(mine),
            "ssl.key.location": str(my_key),
        }
        send(nodes.bootstrap, topic, values(500), **known)
        assert received(nodes.bootstrap, topic, 500, **known) == Counter(values(500))
        for unknown in (
            {"security.protocol": "SSL", "ssl.ca.location": authority},  # without a certificate
            {"security.protocol": "PLAINTEXT"},
        ):
            errors: list[Any] = []
            config = {"bootstrap.servers": nodes.bootstrap, "error_cb": errors.append, **unknown}
            client = AdminClient(config)
            with pytest.raises(KafkaException):
                client.list_topics(timeout=3)
            wait_until(lambda client=client, errors=errors: client.poll(0.1) or errors)  # type: ignore[misc]


def test_a_broker_that_another_authority_signed_is_not_trusted(cluster: KafkaCluster) -> None:
    from tests.certificates import Authority

    folder = VAR / "other-authority"
    folder.mkdir()
    tls = {"brokers": {"authority": str(Authority(folder).certificate)}}
    with proxies(cluster, VAR / "untrusted", 1, listener="SSL", tls=tls) as nodes:
        client = AdminClient({"bootstrap.servers": nodes.bootstrap})
        with pytest.raises(KafkaException):
            client.list_topics(timeout=3)
        wait_until(lambda: "certificate verify failed" in nodes[0].log.read_text())


def test_two_users_never_share_what_they_see(guarded: Proxies, alices: str) -> None:
    send(guarded.bootstrap, alices, values(10), **sasl("PLAIN", "alice"))
    consumer = Consumer({"bootstrap.servers": guarded.bootstrap, "group.id": uuid.uuid4().hex, **sasl("PLAIN", "bob")})
    consumer.subscribe([alices])
    message = consumer.poll(LIMIT_SECONDS)
    consumer.close()
    assert message is not None
    assert message.error().name() in {"TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED"}
