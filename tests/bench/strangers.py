"""A part of ``make bench-proxy``: 50 clients of a proxy that work, alone and beside 2,000 connections that only take.

As a program it is these connections: ``python -m tests.bench.strangers ADDRESS COUNT``.
"""

import asyncio
import contextlib
import random
import ssl
import struct
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import uvloop
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kafka_cluster import USERS, KafkaCluster
from tests.kafka_proxies import ProxyProcess, proxies

HONEST, STRANGERS = 50, 2000
SIZE = 1000
PAUSE = 0.1
"""Seconds between the records of one client."""
ALONE_SECONDS, BESIDE_SECONDS, AFTER_SECONDS = 30, 50, 30
AGAIN_SECONDS = 5
"""About how soon a connection that was closed is opened again."""
LIMIT_MB, LIMIT_RATIO = 400, 2.0


@dataclass
class Outcome:
    """Times in ms, memory in MB."""

    alone: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    before: float = 0.0
    peak: float = 0.0
    after: float = 0.0
    connections: int = 0
    refused: int = 0


class Honest:
    """Clients, each of which sends a record, waits until it is acknowledged, and pauses."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.times: list[float] = []
        self._topic = topic
        self._stop = threading.Event()
        settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "alice"}
        self._settings = settings | {"bootstrap.servers": bootstrap, "sasl.password": USERS["alice"], "linger.ms": 0}
        self._threads = [threading.Thread(target=self._send) for _ in range(HONEST)]
        for thread in self._threads:
            thread.start()

    def _send(self) -> None:
        producer = Producer({**self._settings, "acks": 1})
        time.sleep(random.uniform(0, PAUSE))
        while not self._stop.wait(PAUSE):
            began = time.perf_counter()
            producer.produce(self._topic, bytes(SIZE), on_delivery=lambda error, _: self._failed(error))
            assert producer.flush(60) == 0
            self.times.append((time.perf_counter() - began) * 1000)

    @staticmethod
    def _failed(error: object) -> None:
        assert error is None, error

    def during(self, seconds: float) -> list[float]:
        """The times of the records that are sent in these seconds."""
        before = len(self.times)
        time.sleep(seconds)
        return self.times[before:]

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


class Watch:
    """The proxy's memory and connections, twice a second."""

    def __init__(self, proxy: ProxyProcess) -> None:
        assert proxy.process is not None
        self._proxy = proxy
        self._process = psutil.Process(proxy.process.pid)
        self._stop = threading.Event()
        self.peak = 0.0
        self.connections = 0
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def memory(self) -> float:
        return self._process.memory_info().rss / 1e6

    def _look(self) -> None:
        while not self._stop.wait(0.5):
            self.peak = max(self.peak, self.memory())
            self.connections = max(self.connections, int(self._proxy.metric("headrace_proxy_client_connections")))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def measure(cluster: KafkaCluster, folder: Path) -> Outcome:
    """Takes about two minutes."""
    cluster.allow_all("alice")
    topic = f"strangers-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap()})
    admin.create_topics([NewTopic(topic, 6, 1)])[topic].result(30)
    outcome = Outcome()
    limit = 2 * (STRANGERS + HONEST)
    with proxies(cluster, folder, 1, listener="SASL_PLAINTEXT", connection_limit=limit) as nodes:
        honest = Honest(nodes.bootstrap, topic)
        try:
            honest.during(5)  # until all are connected
            outcome.alone = honest.during(ALONE_SECONDS)
            watch = Watch(nodes[0])
            outcome.before = watch.memory()
            try:
                with strangers(nodes[0].address):
                    outcome.beside = honest.during(BESIDE_SECONDS)
                honest.during(AFTER_SECONDS)
            finally:
                watch.stop()
            outcome.peak, outcome.connections, outcome.after = watch.peak, watch.connections, watch.memory()
            outcome.refused = int(nodes[0].metric("headrace_proxy_refused_connections_total"))
        finally:
            honest.stop()
    return outcome


def report(outcome: Outcome) -> str:
    alone, beside = _percentile(outcome.alone, 99), _percentile(outcome.beside, 99)
    is_met = outcome.peak < LIMIT_MB and beside <= LIMIT_RATIO * alone
    return "\n".join(
        [
            f"{HONEST} clients that sign in with PLAIN and send a record of {SIZE:,} B ten times a second each, "
            f"{ALONE_SECONDS} s alone, then {BESIDE_SECONDS} s beside {STRANGERS:,} connections of one process: a "
            "quarter announces 90 MiB, a quarter sends one byte, a quarter nothing, a quarter begins TLS. Those that "
            f"the proxy closes come again after about {AGAIN_SECONDS} s. Until a record is acknowledged:",
            "",
            "| | records | p50 ms | p99 ms |",
            "|---|---|---|---|",
            *(
                f"| {name} | {len(times):,} | {_percentile(times, 50):.2f} | {_percentile(times, 99):.2f} |"
                for name, times in (("alone", outcome.alone), ("beside them", outcome.beside))
            ),
            "",
            f"p99 {beside / alone:.2f} times its value alone (wanted: {LIMIT_RATIO:g}). Memory of the proxy (RSS): "
            f"{outcome.before:.0f} MB before, {outcome.peak:.0f} MB at most (wanted: {LIMIT_MB}), {outcome.after:.0f} "
            f"MB {AFTER_SECONDS} s after they had gone. Connections at the same time: {outcome.connections:,}; "
            f"closed by the proxy: {outcome.refused:,}. {'Met.' if is_met else 'Not met.'}",
            "",
        ]
    )


def _percentile(values: list[float], percent: int) -> float:
    return sorted(values)[len(values) * percent // 100]


# -- the connections


@contextmanager
def strangers(address: str) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-m", "tests.bench.strangers", address, str(STRANGERS)])
    try:
        yield
        assert process.poll() is None, "They ended by themselves."
    finally:
        process.kill()
        process.wait()


def client_hello() -> bytes:
    """What a TLS client says first."""
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="proxy")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


async def run(address: str, count: int) -> None:
    """Until it is killed."""
    kinds = [struct.pack(">i", 90 * 1024 * 1024), b"\0", b"", client_hello()]
    await asyncio.gather(*(_hold(address, kinds[number % len(kinds)]) for number in range(count)))


async def _hold(address: str, data: bytes) -> None:
    host, _, port = address.rpartition(":")
    await asyncio.sleep(random.uniform(0, AGAIN_SECONDS))
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(data)
            await reader.read()
            writer.close()
        await asyncio.sleep(random.uniform(0.5, 1.5) * AGAIN_SECONDS)


if __name__ == "__main__":
    uvloop.run(run(sys.argv[1], int(sys.argv[2])))
