"""``make bench-proxy``: Kafka's own load tools against three brokers, alternately direct and through one proxy,
compared with a peer in the same runs; then clients beside strangers (``--part strangers`` does only this).

The peer is Shotover, given as the path of its binary. This module writes its configuration.
"""

import argparse
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import psutil
import yaml
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from backend.runtime.health import is_listening
from backend.runtime.jars import ensure_jars
from backend.runtime.java import java_home
from backend.runtime.layout import Layout
from backend.settings import ROOT
from tests.bench import strangers
from tests.bench.machine import machine
from tests.kafka_cluster import KafkaCluster
from tests.kafka_proxies import proxies
from tests.ports import free_ports

RESULTS = Path(__file__).parent / "results/proxy.md"
STRANGERS = "## Beside strangers"
LOADS = {100: 1_000_000, 1000: 300_000, 100_000: 6_000}
"""Number of records by their size in bytes."""
PACED_RECORDS, PACED_SIZE = 5000, 1000
PARTITIONS = 6
PRODUCER = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER = "org.apache.kafka.tools.ConsumerPerformance"


@dataclass
class Way:
    """One way to the brokers. ``process`` is the proxy in between, if any."""

    name: str
    bootstrap: str
    process: psutil.Process | None = None
    produced: dict[int, list[float]] = field(default_factory=dict)
    """MB/s of each run, by the size of the records."""
    consumed: dict[int, list[float]] = field(default_factory=dict)
    cpu: dict[int, list[tuple[float, float]]] = field(default_factory=dict)
    """CPU seconds per GB, for producing and for consuming."""
    latency: list[tuple[float, float]] = field(default_factory=list)
    """Median and 99th percentile, in ms, until a record is acknowledged, with one record in flight."""

    def cpu_seconds(self) -> float:
        return sum(self.process.cpu_times()[:2]) if self.process is not None else 0.0


class Bench:
    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap()})

    def saturate(self, way: Way, size: int, records: int) -> None:
        """Produces, then consumes, as fast as possible."""
        with self._topic() as topic:
            began = way.cpu_seconds()
            output = self._run(
                PRODUCER,
                *("--topic", topic, "--num-records", str(records), "--record-size", str(size), "--throughput", "-1"),
                *("--producer-props", f"bootstrap.servers={way.bootstrap}", "acks=1", "max.request.size=2000000"),
            )
            produced = way.cpu_seconds()
            rate = re.findall(r"\(([\d.]+) MB/sec\)", output)[-1]
            way.produced.setdefault(size, []).append(float(rate))
            output = self._run(
                CONSUMER,
                *("--bootstrap-server", way.bootstrap, "--topic", topic, "--messages", str(records)),
                *("--group", uuid.uuid4().hex, "--timeout", "60000"),
            )
            consumed = way.cpu_seconds()
            cells = [cell.strip() for cell in output.strip().splitlines()[-1].split(",")]
            way.consumed.setdefault(size, []).append(float(cells[8]))  # fetch.MB.sec, which excludes joining the group
            gigabytes = size * records / 1e9
            way.cpu.setdefault(size, []).append(((produced - began) / gigabytes, (consumed - produced) / gigabytes))

    def pace(self, way: Way) -> None:
        """Sends each record when the previous one is acknowledged."""
        with self._topic() as topic:
            producer = Producer({"bootstrap.servers": way.bootstrap, "acks": 1, "linger.ms": 0})
            took = []
            for _ in range(PACED_RECORDS):
                began = time.perf_counter()
                producer.produce(topic, bytes(PACED_SIZE), on_delivery=lambda error, _: check(error))
                assert producer.flush(30) == 0
                took.append((time.perf_counter() - began) * 1000)
            took = sorted(took[PACED_RECORDS // 10 :])  # without the time to connect
            way.latency.append((took[len(took) // 2], took[len(took) * 99 // 100]))

    @contextmanager
    def _topic(self) -> Iterator[str]:
        name = f"bench-{uuid.uuid4().hex[:8]}"
        self._admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)
        time.sleep(1)
        yield name
        self._admin.delete_topics([name])[name].result(30)
        time.sleep(1)

    def _run(self, tool: str, *arguments: str) -> str:
        done = self._cluster.tool(tool, *arguments, seconds=300)
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextmanager
def shotover(binary: Path, cluster: KafkaCluster, folder: Path) -> Iterator[Way]:
    folder.mkdir()
    listen, peers, metrics = (f"127.0.0.1:{port}" for port in free_ports(3))
    node = {"address_for_clients": listen, "address_for_peers": peers, "rack": "rack1", "broker_id": 0}
    sink = {
        "first_contact_points": cluster.bootstrap().split(","),
        "shotover_nodes": [node],
        "local_shotover_broker_id": 0,
        "connect_timeout_ms": 3000,
        "check_shotover_peers_delay_ms": 3000,
    }
    source = {"name": "kafka", "listen_addr": listen, "chain": [{"KafkaSinkCluster": sink}]}
    (folder / "topology.yaml").write_text(yaml.safe_dump({"sources": [{"Kafka": source}]}))
    (folder / "config.yaml").write_text(yaml.safe_dump({"main_log_level": "info", "observability_interface": metrics}))
    arguments = ["--topology-file", "topology.yaml", "--config-file", "config.yaml"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([str(binary.resolve()), *arguments], cwd=folder, stdout=log, stderr=log)
    try:
        while not is_listening(listen):
            assert process.poll() is None, (folder / "log").read_text()
            time.sleep(0.1)
        yield Way("Shotover 0.7.2", listen, psutil.Process(process.pid))
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def report(ways: list[Way], rounds: int) -> str:
    direct = ways[0]
    lines = [
        "# Kafka proxy",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, {machine()}, everything on it: three brokers (Kafka 4.1.1), the client and the "
        f"proxy. Kafka's own ProducerPerformance (acks=1) and ConsumerPerformance, {PARTITIONS} partitions without "
        f"replicas, medians of {rounds} alternating runs. Ratios are relative to the direct runs.",
        "",
        "| way | record | produce MB/s | ratio | consume MB/s | ratio | CPU s per GB, produce / consume |",
        "|---|---|---|---|---|---|---|",
    ]
    for size in direct.produced:
        for way in ways:
            produced, consumed = statistics.median(way.produced[size]), statistics.median(way.consumed[size])
            cpu = [statistics.median(run) for run in zip(*way.cpu[size], strict=True)]
            ratios = [
                statistics.median(mine / theirs for mine, theirs in zip(own[size], base[size], strict=True))
                for own, base in ((way.produced, direct.produced), (way.consumed, direct.consumed))
            ]
            costs = "-" if way.process is None else f"{cpu[0]:.1f} / {cpu[1]:.1f}"
            lines.append(
                f"| {way.name} | {size:,} B | {produced:.0f} | {ratios[0]:.2f} | {consumed:.0f} | {ratios[1]:.2f} "
                f"| {costs} |"
            )
    lines += [
        "",
        f"Time until a record of {PACED_SIZE:,} B is acknowledged, with one record in flight:",
        "",
        "| way | p50 ms | p99 ms |",
        "|---|---|---|",
    ]
    for way in ways:
        median, high = (statistics.median(run) for run in zip(*way.latency, strict=True))
        lines.append(f"| {way.name} | {median:.2f} | {high:.2f} |")
    return "\n".join([*lines, ""])


def write(load: str | None, beside: str | None) -> str:
    """Replaces the parts that were measured."""
    old_load, _, old_beside = RESULTS.read_text().partition(f"\n{STRANGERS}\n\n")
    text = load or old_load
    if beside is not None:
        beside = f"{datetime.now(UTC):%Y-%m-%d}, {machine()}, everything on it.\n\n{beside}"
    if beside or old_beside:
        text += f"\n{STRANGERS}\n\n{beside or old_beside}"
    RESULTS.write_text(text)
    return text


def check(error: KafkaError | None) -> None:
    assert error is None, error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", type=Path, help="Shotover's binary")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--part", choices=["load", "strangers"], help="only this part")
    options = parser.parse_args()
    layout = Layout(ROOT / "var")
    layout.create()
    ensure_jars(layout, java_home(layout))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = KafkaCluster(folder / "cluster", layout.jars, java_home(layout))
        stack.callback(cluster.stop)
        cluster.start()
        load = measure_load(cluster, folder, options.peer, options.rounds) if options.part != "strangers" else None
        beside = strangers.report(strangers.measure(cluster, folder / "beside")) if options.part != "load" else None
    print(write(load, beside))


def measure_load(cluster: KafkaCluster, folder: Path, peer: Path | None, rounds: int) -> str:
    with ExitStack() as stack:
        ours = stack.enter_context(proxies(cluster, folder / "proxy", 1))
        assert ours[0].process is not None
        ways = [
            Way("direct", cluster.bootstrap()),
            Way("Headrace", ours.bootstrap, psutil.Process(ours[0].process.pid)),
        ]
        if peer is not None:
            ways.append(stack.enter_context(shotover(peer, cluster, folder / "shotover")))
        bench = Bench(cluster)
        for way in ways:
            bench.saturate(way, 1000, 50_000)  # warm-up
            way.produced.clear()
            way.consumed.clear()
            way.cpu.clear()
        for number in range(rounds):
            for way in ways:
                for size, records in LOADS.items():
                    bench.saturate(way, size, records)
                bench.pace(way)
            print(f"Round {number + 1} of {rounds}.", file=sys.stderr, flush=True)
    return report(ways, rounds)


if __name__ == "__main__":
    main()
