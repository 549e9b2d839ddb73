"""Connections that cost a proxy something and bring nothing, beside clients that work; sessions that are over."""

import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer

from tests.infra import VAR
from tests.integration.kafka_proxy.clients import make_topic, send, values
from tests.integration.kafka_proxy.test_faults import answered, connected, frame
from tests.integration.kafka_proxy.test_security import sasl, unsecured_token
from tests.kafka_cluster import KafkaCluster
from tests.kafka_proxies import Proxies, ProxyProcess, proxies
from tests.waiting import LIMIT_SECONDS, wait_until

MIB = 1024 * 1024
COUNT = 200
SECONDS = 5
REFUSED = "headrace_proxy_refused_connections_total"


@pytest.fixture(scope="module")
def guarded(cluster: KafkaCluster) -> Iterator[Proxies]:
    """A proxy in front of the listener that requires authentication, with short deadlines and few places."""
    cluster.allow_all("alice")
    limits = {"login_timeout_ms": SECONDS * 1000, "frame_timeout_ms": SECONDS * 1000, "connection_limit": 100}
    with proxies(cluster, VAR / "strangers", 1, listener="SASL_PLAINTEXT", **limits) as nodes:
        send(nodes.bootstrap, make_topic(cluster), values(10), **sasl("PLAIN", "alice"))
        yield nodes


def refused(proxy: ProxyProcess, reason: str) -> float:
    return proxy.metric(f'{REFUSED}{{reason="{reason}"}}')


def silent(connection: socket.socket) -> None:
    pass


def one_byte(connection: socket.socket) -> None:
    connection.sendall(b"\0")


def half_a_request(connection: socket.socket) -> None:
    connection.sendall(struct.pack(">i", 60_000) + bytes(50_000))


def announcement(connection: socket.socket) -> None:
    connection.sendall(struct.pack(">i", 90 * MIB) + b"x")


def tls(connection: socket.socket) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection.settimeout(LIMIT_SECONDS)
    with contextlib.suppress(OSError):
        context.wrap_socket(connection, do_handshake_on_connect=True)


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(LIMIT_SECONDS)
    with contextlib.suppress(ConnectionResetError):
        return connection.recv(1) == b""
    return True


@pytest.mark.parametrize("hostile", [silent, one_byte, half_a_request, announcement, tls])
def test_neighbours_10_strangers_lock_nobody_out_and_cost_little(
    guarded: Proxies, cluster: KafkaCluster, hostile: Callable[[socket.socket], None]
) -> None:
    proxy = guarded[0]
    assert proxy.process is not None
    process = psutil.Process(proxy.process.pid)
    topic = make_topic(cluster)
    settings = {"bootstrap.servers": guarded.bootstrap, "linger.ms": 0, **sasl("PLAIN", "alice")}
    failed: list[Any] = []
    old = Producer(settings)
    old.produce(topic, b"before", on_delivery=lambda error, _: error and failed.append(error))
    assert old.flush(LIMIT_SECONDS) == 0
    before = process.memory_info().rss
    log = proxy.log.read_text()
    with contextlib.ExitStack() as stack:
        connections = []
        for _ in range(COUNT):
            connection = stack.enter_context(connected(proxy.address))
            with contextlib.suppress(ConnectionError):  # it may have had to make room
                hostile(connection)
            connections.append(connection)
        assert process.memory_info().rss - before < 60 * MIB
        for producer in (old, Producer(settings)):
            producer.produce(topic, bytes(900_000), on_delivery=lambda error, _: error and failed.append(error))
            assert producer.flush(LIMIT_SECONDS) == 0
        assert not failed
        if hostile is not tls:  # whose sockets belong to the TLS layer
            assert all(is_closed(connection) for connection in connections)
    lines = proxy.log.read_text()[len(log) :].splitlines()
    assert len([line for line in lines if "connection is closed" in line]) < COUNT // 2
    assert not any("Traceback" in line for line in lines)


@pytest.mark.parametrize(
    ("hostile", "reason", "text"),
    [
        (tls, "tls", "It speaks TLS, but this is a plain port."),
        (announcement, "size", "It announced a request of 94371840 bytes; until it has signed in"),
        (silent, "login", f"It has not signed in within {SECONDS} seconds."),
    ],
)
def test_neighbours_10_the_log_says_why(
    guarded: Proxies, hostile: Callable[[socket.socket], None], reason: str, text: str
) -> None:
    proxy = guarded[0]
    time.sleep(11)  # the lines of the last period may be used up
    before, log = refused(proxy, reason), proxy.log.read_text()
    with connected(proxy.address) as connection:
        hostile(connection)
        wait_until(lambda: refused(proxy, reason) > before)
    assert text in proxy.log.read_text()[len(log) :]


def test_neighbours_10_plain_clients_at_the_tls_port_are_named(cluster: KafkaCluster) -> None:
    certificate, key = cluster.authority.issue("strangers")
    clients = {"certificate": str(certificate), "private_key": str(key)}
    with proxies(cluster, VAR / "strangers-tls", 1, tls={"clients": clients}, login_timeout_ms=SECONDS * 1000) as nodes:
        proxy = nodes[0]
        with connected(proxy.address) as plain, connected(proxy.address) as quiet:
            plain.sendall(frame(18, 0, b""))
            wait_until(lambda: "It does not speak TLS, which this port requires" in proxy.log.read_text())
            assert is_closed(quiet)
        assert refused(proxy, "tls") == 1
        assert refused(proxy, "login") == 1
        assert proxy.metric("headrace_proxy_client_connections") == 0


def text(value: bytes) -> bytes:
    return struct.pack(">h", len(value)) + value


def sign_in(connection: socket.socket, seconds: float) -> int:
    """Signs in with a token that expires so soon. Returns the session's lifetime in ms."""
    assert answered(connection, frame(17, 1, text(b"OAUTHBEARER")))[8:10] == b"\0\0"
    token = b"n,,\x01auth=Bearer " + unsecured_token("alice", seconds).encode() + b"\x01\x01"
    answer = answered(connection, frame(36, 1, struct.pack(">i", len(token)) + token))
    assert answer[8:16] == bytes(8), answer  # no error, no message, and no text that tells of one
    return int(struct.unpack(">q", answer[-8:])[0])


METADATA = frame(3, 1, struct.pack(">i", 0))


def answers(connection: socket.socket) -> bool:
    with contextlib.suppress(AssertionError, ConnectionError):
        return bool(answered(connection, METADATA))
    return False


def test_neighbours_10_a_session_that_is_not_renewed_ends(guarded: Proxies) -> None:
    proxy = guarded[0]
    before = refused(proxy, "session")
    with connected(proxy.address) as ignoring, connected(proxy.address) as renewing:
        ends = time.monotonic() + 10
        assert 0 < sign_in(ignoring, 10) <= 10_000
        sign_in(renewing, 10)
        sign_in(renewing, 600)
        wait_until(lambda: not answers(ignoring))
        assert time.monotonic() > ends - 0.1  # the token has whole milliseconds
        wait_until(lambda: refused(proxy, "session") == before + 1)
        assert answered(renewing, METADATA)


def test_neighbours_10_clients_that_renew_their_session_notice_nothing(guarded: Proxies, cluster: KafkaCluster) -> None:
    topic = make_topic(cluster)
    failed: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": guarded.bootstrap,
            "linger.ms": 0,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (unsecured_token("alice", 10), time.time() + 10),
        }
    )
    before = refused(guarded[0], "session")
    ends = time.monotonic() + 25
    while time.monotonic() < ends:
        producer.produce(topic, b"x", on_delivery=lambda error, _: error and failed.append(error))
        producer.poll(0.1)
    assert producer.flush(LIMIT_SECONDS) == 0
    assert not failed, failed[0]
    assert refused(guarded[0], "session") == before
