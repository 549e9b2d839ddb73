"""``make bench-transform``: 1 KB messages through five steps, Kafka to Kafka, compared with a peer that does the same
work in the same run; and the time to find the filters that match a message.

The peer is Benthos 4.27, given as a folder with its binary ``benthos`` and its configuration ``transform.yaml``.
"""

import argparse
import json
import random
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import psutil
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from confluent_kafka.cimpl import NewTopic
from pydantic import TypeAdapter

from backend.domain import json as domain_json
from backend.domain import routing
from backend.domain.filters.conditions import Condition
from backend.domain.filters.index import PredicateIndex
from backend.domain.message import Message, new_message_id, utc_now
from tests.bench.machine import machine
from tests.bench.neighbour import RATE, SECONDS, WARM_UP_SECONDS, Latency, measure
from tests.bench.topics import Filling, fill
from tests.installation import Installation, temporary_installation
from tests.ports import free_ports

RESULTS = Path(__file__).parent / "results/transform.md"
MESSAGES = 600_000
STEPS: list[dict[str, Any]] = [
    {"type": "drop_unless", "path": "amount", "condition": "greater_or_equal", "value": 1},
    {
        "type": "map",
        "path": "user.country",
        "to": "user.country_name",
        "table": {"BR": "Brazil", "PT": "Portugal"},
        "otherwise": "other",
    },
    {"type": "hash", "path": "user.email"},
    {"type": "expression", "expression": "double(message.amount) * double(message.qty)", "to": "total"},
    {"type": "remove", "paths": ["qty"]},
]
FILTERS = (10, 1000, 10_000)
OFFERED = 20_000
ROUNDS = 5


@dataclass
class Result:
    """The result of one engine. ``cpu`` is CPU seconds of the engine, without Kafka."""

    engine: str
    rate: float
    cpu: float
    messages: int


def body(n: int) -> bytes:
    """A message body; the pipeline drops one in ten."""
    document = {
        "id": n,
        "amount": 0.5 if n % 10 == 0 else n % 1000 + 1.25,
        "qty": n % 7 + 1,
        "user": {"country": ("BR", "PT", "AR")[n % 3], "email": f"user{n}@example.com"},
        "note": "x" * 860,
    }
    return json.dumps(document).encode()


def records(headers: Callable[[], Any]) -> Iterator[Filling]:
    return (Filling(body(n), str(n).encode(), headers()) for n in range(MESSAGES))


def ends(admin: AdminClient, topic: str) -> int:
    parts = admin.list_topics(topic, timeout=10).topics[topic].partitions
    specs: dict[TopicPartition, Any] = {TopicPartition(topic, part): OffsetSpec.latest() for part in parts}  # type: ignore[no-untyped-call]
    return sum(future.result().offset for future in admin.list_offsets(specs).values())


def committed(admin: AdminClient, group: str, topic: str) -> int:
    parts = [TopicPartition(topic, part) for part in admin.list_topics(topic, timeout=10).topics[topic].partitions]
    [future] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group, parts)]).values()
    return sum(max(0, part.offset) for part in future.result().topic_partitions)


def _cpu(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes if process.is_running())


def timed(engine: str, done: Callable[[], int], target: int, processes: Callable[[], list[psutil.Process]]) -> Result:
    """Measures the rate from the first observed progress to the last."""
    while (first := done()) == 0:
        time.sleep(0.02)
    running = processes()
    before, began = _cpu(running), time.perf_counter()
    while (now := done()) < target:
        time.sleep(0.05)
    lasted = time.perf_counter() - began
    share = (now - first) / target
    print(engine, f"{share * MESSAGES / lasted:,.0f}/s", flush=True)
    return Result(engine, share * MESSAGES / lasted, _cpu(running) - before, round(share * MESSAGES))


def headrace(installation: Installation) -> Result:
    """Runs the stage alone; its results stay in ``firehose_adapted``."""
    kafka = installation.endpoint("kafka")
    admin = AdminClient({"bootstrap.servers": kafka})
    pipeline = installation.publish_pipeline("Bench", "http://127.0.0.1:9/", transforms=STEPS)
    _set_running(installation, "stop", "stopped")
    _set_stages(installation, "adapting_transformer")

    def headers() -> Any:
        message = Message(new_message_id(), pipeline, 1, b"", b"", "application/json", utc_now(), (routing.ADAPTED,))
        return message.headers()

    before = committed(admin, "headrace-adapting_transformer", routing.TRANSFORMER)
    fill(kafka, routing.TRANSFORMER, records(headers))
    _set_running(installation, "start", "running")
    return timed(
        "Headrace",
        lambda: committed(admin, "headrace-adapting_transformer", routing.TRANSFORMER) - before,
        MESSAGES,
        lambda: [driver, *driver.children(recursive=True)] if (driver := installation.spark()) else [],
    )


def _set_stages(installation: Installation, *stages: str) -> None:
    code = f"from backend.apps.jobs.models import SparkJob; SparkJob.objects.update(stages={list(stages)!r})"
    installation.manage_in("shell", "-c", code)


def beside_a_hanging_api(installation: Installation) -> list[Latency]:
    _set_running(installation, "stop", "stopped")
    _set_stages(installation, "adapting", "adapting_transformer", "adapting_slow")
    _set_running(installation, "start", "running")
    return measure(installation, STEPS, body(1))


def _set_running(installation: Installation, action: Literal["start", "stop"], status: str) -> None:
    installation.set_job(action)
    while installation.api("GET", "jobs/data-plane/")[1]["status"] != status:
        time.sleep(0.2)


def benthos(folder: Path, installation: Installation) -> Result:
    _set_running(installation, "stop", "stopped")
    kafka = installation.endpoint("kafka")
    admin = AdminClient({"bootstrap.servers": kafka})
    source, target = f"peer-in-{time.time_ns()}", f"peer-out-{time.time_ns()}"
    for future in admin.create_topics([NewTopic(source, 2, 1), NewTopic(target, 2, 1)]).values():
        future.result()
    fill(kafka, source, records(lambda: None))
    changes = {
        "127.0.0.1:19092": kafka,
        "peer_tin": source,
        "peer_tout": target,
        "peer_t,": f"{source},",
        "127.0.0.1:4195": f"127.0.0.1:{free_ports(1)[0]}",
    }
    text = (folder / "transform.yaml").read_text()
    for old, new in changes.items():
        text = text.replace(old, new)
    config = installation.var / "transform.yaml"
    config.write_text(text)
    process = subprocess.Popen([folder / "benthos", "-c", config], stdout=subprocess.DEVNULL)
    kept = sum(n % 10 != 0 for n in range(MESSAGES))
    result = timed("Benthos 4.27", lambda: ends(admin, target), kept, lambda: [psutil.Process(process.pid)])
    process.terminate()
    process.wait()
    return result


def conditions(count: int) -> list[tuple[int, Condition]]:
    """Filters, a third of each kind: equality on the shop, range of totals, prefix of the article with a country."""
    random.seed(1)
    adapter: TypeAdapter[Condition] = TypeAdapter(Condition)
    conditions: list[dict[str, Any]] = []
    for n in range(count):
        low = random.uniform(0, 10_000)
        between = [
            {"type": "greater_or_equal", "field": "total", "value": low},
            {"type": "less_than", "field": "total", "value": low + 5},
        ]
        article = {"type": "prefix", "field": "article", "value": f"A{random.randrange(10_000):04d}"}
        country = {"type": "equals", "field": "country", "value": random.choice(["BR", "PT", "AR"])}
        ways: list[dict[str, Any]] = [
            {"type": "equals", "field": "shop", "value": n},
            {"type": "all", "conditions": between},
            {"type": "all", "conditions": [article, country]},
        ]
        conditions.append(ways[n % 3])
    return [(n, adapter.validate_python(condition)) for n, condition in enumerate(conditions)]


def as_read(index: dict[str, Any]) -> dict[str, Any]:
    """Messages with numbers as the data plane decodes them."""
    return dict(domain_json.loads(domain_json.dumps(index)))


def matching() -> list[tuple[int, float, float]]:
    """For each number of filters: messages per second on one core, and matches per message."""
    random.seed(2)
    offered = [
        as_read(
            {
                "shop": random.randrange(10_000),
                "total": random.uniform(0, 10_000),
                "article": f"A{random.randrange(10_000):04d}-X",
                "country": random.choice(["BR", "PT", "AR", "US"]),
            }
        )
        for _ in range(OFFERED)
    ]
    rows = []
    for count in FILTERS:
        index = PredicateIndex(conditions(count))
        rates = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            matches = sum(len(index.matches(message)) for message in offered)
            rates.append(OFFERED / (time.perf_counter() - began))
        rows.append((count, statistics.median(rates), matches / OFFERED))
        print(rows[-1], flush=True)
    return rows


def report(results: list[Result], latencies: list[Latency], rows: list[tuple[int, float, float]]) -> str:
    engines = "\n".join(f"| {r.engine} | {r.rate:,.0f} | {r.messages / r.cpu:,.0f} | {r.messages:,} |" for r in results)
    ratios = "\n".join(
        f"- {results[0].rate / r.rate:.2f} × the peer's messages/s, "
        f"{results[0].messages / results[0].cpu / (r.messages / r.cpu):.2f} × per CPU second"
        for r in results[1:]
    )
    lanes = "\n".join(f"| {one.lane} | {one.beside} | {one.p50:.1f} | {one.p99:.1f} |" for one in latencies)
    filters = "\n".join(f"| {count:,} | {rate:,.0f} | {matches:.2f} |" for count, rate, matches in rows)
    return f"""# Transforms and filters

{datetime.now(UTC):%Y-%m-%d}, {machine()}; Kafka and the console share it. Generated by `make bench-transform`.

## Five steps, Kafka to Kafka

{MESSAGES:,} messages of 1 KB wait in Kafka: map, hash, an expression, remove, and one in ten is dropped. Headrace
reads and writes in transactions, exactly once, with one lane task; the peer at least once, with all cores. CPU is
that of the engine without Kafka, for Headrace Spark's JVM included.

| engine | messages/s | per CPU second | measured over |
|---|---|---|---|
{engines}

{ratios}

## Beside a hanging API

{RATE} messages a second of 1 KB through each lane, Kafka to Kafka, for {SECONDS} s after {WARM_UP_SECONDS} s of
warm-up: alone, and while {RATE // 4} a second of another pipeline call an API that accepts connections and never
answers.

| lane | beside | p50 ms | p99 ms |
|---|---|---|---|
{lanes}

## Filters

Finding the filters that match a message, on one core, with {OFFERED:,} messages, median of {ROUNDS}: a third of the
filters are equalities, a third ranges, a third prefixes combined with an equality.

| filters | messages/s | matches per message |
|---|---|---|
{filters}

With {rows[-1][0]:,} filters {rows[-1][1] / rows[0][1]:.2f} × the rate of {rows[0][0]}.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", type=Path, help="folder with the peer; if omitted, only Headrace is measured")
    parser.add_argument("--keep", action="store_true", help="print the result without storing it")
    parser.add_argument("--jars", type=Path, help="use the jars in this folder instead of downloading them")
    arguments = parser.parse_args()
    rows = matching()
    with temporary_installation("bench", arguments.jars) as installation:
        installation.up()
        results = [headrace(installation)]
        latencies = beside_a_hanging_api(installation)
        if arguments.peer:
            results.append(benthos(arguments.peer, installation))
    text = report(results, latencies, rows)
    print(text)
    if not arguments.keep:
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
