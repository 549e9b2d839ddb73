"""``make bench-gateway``: the read gateway beside a local Kafka broker that has the same documents, and how long a
document takes from its acceptance to a consumer."""

import argparse
import json
import random
import statistics
import subprocess
import threading
import time
import urllib.error
import urllib.request
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from backend.collections.store import CollectionStore
from backend.collections.writer import CollectionWriter, NewDocument
from backend.runtime.java import java_home
from backend.runtime.layout import Layout
from backend.settings import ROOT
from tests.bench.machine import machine
from tests.installation import Installation, temporary_installation
from tests.waiting import wait_until

RESULTS = Path(__file__).parent / "results/gateway.md"
SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
CONSUMER = "org.apache.kafka.tools.ConsumerPerformance"
PARTITIONS = 4
COMMIT = 1000
"""Documents of each commit, as the stage that appends them has them under load."""
PAUSE = 0.02


def document(number: int, source: random.Random) -> bytes:
    """1,000 bytes of JSON, which compress to about half."""
    head = b'{"id":%d,"text":"' % number
    return head + source.randbytes((998 - len(head)) // 2).hex().encode().ljust(998 - len(head), b"-") + b'"}'


@dataclass
class Way:
    """Where consumers read from."""

    name: str
    bootstrap: str
    topic: str
    key: str = ""
    """The API key of the gateway's clients."""
    process: psutil.Process | None = None
    rates: list[float] = field(default_factory=list)
    """MiB/s of each run; the first one reads what nobody has read before."""
    cpu: list[float] = field(default_factory=list)
    """CPU seconds for each GB."""

    def librdkafka(self) -> dict[str, str]:
        login = {"sasl.username": "demo", "sasl.password": self.key} | SASL if self.key else {}
        return {"bootstrap.servers": self.bootstrap, "group.id": uuid.uuid4().hex, **login}

    def cpu_seconds(self) -> float:
        return sum(self.process.cpu_times()[:2]) if self.process is not None else 0.0


class Bench:
    def __init__(self, installation: Installation, folder: Path, documents: int) -> None:
        self._installation = installation
        self._layout = Layout(installation.var, installation.offset)
        self._folder = folder
        self._documents = documents
        self._key = installation.facts["demo"]["api_key"]

    def collection(self, name: str) -> str:
        """The id of a new one."""
        connection = {"partitions": PARTITIONS}
        made = self._installation.create("connectors/", {"name": name, "type": "collection", "connection": connection})
        return str(made["id"])

    def gateway(self) -> Way:
        """With all documents."""
        collection = self.collection("bench")
        workspace = self._workspace_of(collection)
        store = CollectionStore(str(self._installation.var / "collections"))
        writer = CollectionWriter(store.table(workspace, collection, partitions=PARTITIONS), "bench")
        source = random.Random(1)
        for first in range(0, self._documents, COMMIT):
            batch = [
                NewDocument(number, number % PARTITIONS, b"%d" % number, document(number, source))
                for number in range(first, first + COMMIT)
            ]
            writer.append(batch, first + COMMIT)
        # The workers merge small files, as they do all the time; here not while anything is measured.
        commits = self._documents // COMMIT
        wait_until(lambda: self._files_of(collection) <= commits * PARTITIONS // 4, 300, interval=1)
        pid = next(row["pid"] for row in self._installation.facts["processes"] if row["name"] == "read-gateway")
        address = self._installation.endpoint("read_gateway")
        return Way("read gateway", address, "bench", self._key, psutil.Process(pid))

    def _files_of(self, collection: str) -> int:
        _, shown = self._installation.api("GET", f"collections/{collection}/")
        return sum(part["files"] for part in shown["partition_states"])

    def _workspace_of(self, collection: str) -> str:
        models = "from backend.apps.connectors.models import Connector"
        code = f"{models}; print(Connector.objects.get(pk='{collection}').workspace_id)"
        return self._installation.manage_in("shell", "-c", code).split()[-1]

    def kafka(self, compression: str) -> Way:
        """With the same documents."""
        bootstrap, topic = self._installation.endpoint("kafka"), f"bench-{compression}"
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": compression, "linger.ms": 50})
        source = random.Random(1)
        for number in range(self._documents):
            producer.produce(topic, document(number, source), b"%d" % number, partition=number % PARTITIONS)
            if number % COMMIT == 0:
                producer.flush(60)
        assert producer.flush(60) == 0
        process = next(row["pid"] for row in self._installation.facts["processes"] if row["name"] == "kafka")
        return Way(f"Kafka, {compression}", bootstrap, topic, "", psutil.Process(process))

    def read(self, way: Way) -> None:
        """One consumer, as fast as it can."""
        settings = self._folder / "client.properties"
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        login = [f'sasl.jaas.config={module} required username="demo" password="{way.key}";']
        settings.write_text("\n".join([*login, *map("=".join, SASL.items())] if way.key else []))
        began = way.cpu_seconds()
        java = [str(java_home(self._layout) / "bin/java"), "-Xmx512m", "-cp", f"{ROOT}/var/jars/kafka/*", CONSUMER]
        done = subprocess.run(
            [
                *java,
                *("--bootstrap-server", way.bootstrap, "--topic", way.topic, "--messages", str(self._documents)),
                *("--group", uuid.uuid4().hex, "--timeout", "60000", "--consumer.config", str(settings)),
            ],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        cells = [cell.strip() for cell in done.stdout.strip().splitlines()[-1].split(",")]
        assert int(cells[4]) >= self._documents, done.stdout
        way.rates.append(float(cells[8]))  # fetch.MB.sec, which excludes joining the group
        way.cpu.append((way.cpu_seconds() - began) / (self._documents * 1000 / 1e9))

    def read_together(self, way: Way, consumers: int, each: int) -> float:
        """Consumers that read so many documents each at the same time: MB/s of all together."""

        def read(number: int) -> int:
            consumer = Consumer(way.librdkafka() | {"queued.max.messages.kbytes": "1024"})
            consumer.assign([TopicPartition(way.topic, number % PARTITIONS, 0)])
            count, deadline = 0, time.monotonic() + 300
            while count < each and time.monotonic() < deadline:
                count += sum(message.error() is None for message in consumer.consume(1000, 1.0))
            consumer.close()
            return min(count, each)

        began = time.monotonic()
        with ThreadPoolExecutor(consumers) as pool:
            counts = list(pool.map(read, range(consumers)))
        assert counts == [each] * consumers, f"{consumers - counts.count(each)} consumers did not get everything."
        return consumers * each * 1000 / 1e6 / (time.monotonic() - began)

    def fresh(self, seconds: float) -> list[float]:
        """Milliseconds from the acceptance of each document to its consumer."""
        installation, collection = self._installation, self.collection("fresh")
        config = {"outputs": [{"name": "log", "connector": collection, "options": {"key": "{{n}}"}}]}
        pipeline = installation.create("pipelines/", {"name": "fresh", "config": config})["id"]
        installation.create(f"pipelines/{pipeline}/publish/", {})
        wait_until(lambda: installation.post(pipeline, {"n": -1})[0] == 202)
        way = Way("fresh", installation.endpoint("read_gateway"), "fresh", self._key)
        consumer = Consumer(way.librdkafka() | {"fetch.wait.max.ms": "500", "auto.offset.reset": "earliest"})
        parts = [TopicPartition("fresh", number, 0) for number in range(PARTITIONS)]
        wait_until(lambda: "fresh" in consumer.list_topics(timeout=10).topics)
        consumer.assign(parts)
        accepted: dict[int, float] = {}
        took: dict[int, float] = {}
        stop = threading.Event()

        def receive() -> None:
            while not stop.is_set():
                for message in consumer.consume(100, 0.05):
                    if message.error() is None:
                        took[json.loads(message.value() or b"")["n"]] = time.perf_counter()

        receiving = threading.Thread(target=receive)
        receiving.start()
        wait_until(lambda: -1 in took, 120)
        url = f"{installation.endpoint('ingest')}/v1/pipelines/{pipeline}/messages"
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        for number in range(int(seconds / PAUSE)):
            request = urllib.request.Request(url, json.dumps({"n": number}).encode(), headers)
            # A busy machine may refuse some.
            with suppress(urllib.error.HTTPError), urllib.request.urlopen(request, timeout=30):
                accepted[number] = time.perf_counter()
            time.sleep(PAUSE)
        wait_until(lambda: took.keys() >= accepted.keys())
        stop.set()
        receiving.join()
        consumer.close()
        return sorted((took[number] - at) * 1000 for number, at in accepted.items())


def report(ways: list[Way], together: list[tuple[str, float]], fresh: list[float], options: argparse.Namespace) -> str:
    base = statistics.median(ways[1].rates[1:])
    lines = [
        "# Read gateway",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, {machine()}, everything on it: the whole installation with its Kafka broker, "
        f"and the consumers. {options.note}".rstrip(),
        "",
        f"One consumer (Kafka's ConsumerPerformance) reads {options.documents:,} documents of 1 KB from {PARTITIONS} "
        f"partitions, {options.rounds} times, alternately; medians without the first run, in which the gateway reads "
        "the files and encodes them.",
        "",
        "| way | first run MiB/s | MiB/s | documents/s | ratio | CPU s per GB |",
        "|---|---|---|---|---|---|",
    ]
    for way in ways:
        rate, cpu = statistics.median(way.rates[1:]), statistics.median(way.cpu[1:])
        documents = rate * 2**20 / 1000
        cells = [f"{way.rates[0]:.0f}", f"{rate:.0f}", f"{documents:,.0f}", f"{rate / base:.2f}", f"{cpu:.1f}"]
        lines.append(f"| {way.name} | {' | '.join(cells)} |")
    lines += [
        "",
        f"{options.consumers} consumers (librdkafka, in one process) read {options.each:,} documents each at the same "
        "time:",
        "",
        "| way | MB/s of all |",
        "|---|---|",
        *(f"| {name} | {rate:.0f} |" for name, rate in together),
        "",
        f"From the acceptance of a document (202) to its consumer, {len(fresh):,} documents, one every "
        f"{PAUSE * 1000:.0f} ms or more: "
        f"p50 {fresh[len(fresh) // 2]:.0f} ms, p99 {fresh[len(fresh) * 99 // 100]:.0f} ms.",
    ]
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--consumers", type=int, default=200)
    parser.add_argument("--each", type=int, default=5_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--note", default="", help="a sentence about the circumstances")
    options = parser.parse_args()
    with temporary_installation("bench-gateway", ROOT / "var/jars") as installation:
        installation.up()
        bench = Bench(installation, installation.var, options.documents)
        ways = [bench.gateway(), bench.kafka("none"), bench.kafka("zstd")]
        for _ in range(options.rounds):
            for way in ways:
                bench.read(way)
        together = [(way.name, bench.read_together(way, options.consumers, options.each)) for way in ways]
        text = report(ways, together, bench.fresh(options.seconds), options)
    RESULTS.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
