"""``make bench-delivery``: HTTP → Kafka → Spark → HTTP, compared with a peer that does the same, in one run.

The peer is Benthos 4.27, given as a folder with its binary ``benthos`` and its configurations
``http_to_kafka.yaml`` and ``kafka_to_http.yaml``. It uses the installation's Kafka, while
Headrace's own Spark application is stopped.
"""

import argparse
import asyncio
import statistics
import subprocess
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import psutil
import uvloop
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.bench.load import Times, load, receive
from tests.bench.machine import machine
from tests.installation import Installation, temporary_installation
from tests.ports import free_ports

RESULTS = Path(__file__).parent / "results/delivery.md"
BODY = b'{%s, "note": "' + b"x" * 980 + b'"}'
RATE = 1000
CONNECTIONS = 128
BACKLOG = 100_000
SETTLE_SECONDS = 8.0
WARM_UP_SECONDS = 90.0
DRAIN_SECONDS = 300.0


@dataclass
class Result:
    """The result of one run. Rates are messages per second; times are milliseconds from sending to the receiver."""

    engine: str
    load: str
    accepted: int
    received: int
    repeated: int
    refused: int
    rate: float
    p50: float
    p95: float
    p99: float
    cpu: float
    """CPU seconds per 1,000 messages, of the engine and Kafka."""


@dataclass
class Engine:
    """One of the two engines, as the runs use it."""

    name: str
    url: str
    key: str
    processes: Callable[[], list[psutil.Process]]
    start_delivering: Callable[[], Awaitable[None]]
    stop_delivering: Callable[[], Awaitable[None]]


def _cpu(processes: list[psutil.Process]) -> float:
    total = 0.0
    for process in processes:
        try:
            total += sum(process.cpu_times()[:2])
        except psutil.Error:
            continue
    return total


def _result(engine: Engine, load: str, times: Times, rate: float, cpu: float) -> Result:
    cuts = statistics.quantiles(times.latencies(times.sent), n=100)
    count = len(times.received)
    return Result(
        engine.name, load, len(times.accepted), count, times.repeated, times.refused, rate,
        cuts[49], cuts[94], cuts[98], cpu / count * 1000,
    )  # fmt: skip


async def run_load(engine: Engine, times: Times, seconds: float, rate: int | None) -> Result:
    """Posts for a while. The rate is measured until the last message is received."""
    times.begin()
    processes = engine.processes()
    before, began = _cpu(processes), time.perf_counter()
    await load(times, url=engine.url, key=engine.key, body=BODY, seconds=seconds, rate=rate, connections=CONNECTIONS)
    await times.all_received(DRAIN_SECONDS)
    lasted = max(times.received.values()) - began
    return _result(
        engine, f"{rate}/s" if rate else "full", times, len(times.received) / lasted, _cpu(processes) - before
    )


async def run_drain(engine: Engine, times: Times) -> Result:
    """Fills Kafka while nothing is delivered, then measures the rate of the deliveries."""
    await engine.stop_delivering()
    times.begin()
    await load(
        times, url=engine.url, key=engine.key, body=BODY, seconds=DRAIN_SECONDS, rate=None, connections=CONNECTIONS,
        messages=BACKLOG,
    )  # fmt: skip
    await engine.start_delivering()
    while not times.received:
        await asyncio.sleep(0.01)
    processes = engine.processes()
    before = _cpu(processes)
    await times.all_received(DRAIN_SECONDS)
    lasted = max(times.received.values()) - min(times.received.values())
    return _result(engine, f"drain of {BACKLOG:,}", times, len(times.received) / lasted, _cpu(processes) - before)


async def measure(engine: Engine, times: Times, seconds: float) -> list[Result]:
    # Kafka's and Spark's JVMs compile for about a minute, and the code that Spark runs at the end of a batch, every
    # 30 s, for longer. Neither engine is measured during this time.
    for warm_up in (None, RATE):
        await load(
            times.begin(), url=engine.url, key=engine.key, body=BODY, seconds=WARM_UP_SECONDS, rate=warm_up,
            connections=CONNECTIONS,
        )  # fmt: skip
        await times.all_received(DRAIN_SECONDS)
    results = []
    for rate in (RATE, None):
        await asyncio.sleep(SETTLE_SECONDS)
        results.append(await run_load(engine, times, seconds, rate))
        print(results[-1], flush=True)
    await asyncio.sleep(SETTLE_SECONDS)
    results.append(await run_drain(engine, times))
    print(results[-1], flush=True)
    return results


def headrace(installation: Installation, receiver: str) -> Engine:
    pipeline = installation.publish_pipeline(f"Bench {time.time_ns()}", receiver)
    job = "jobs/data-plane"

    async def set_running(action: Literal["start", "stop"], status: str) -> None:
        installation.set_job(action)
        while installation.api("GET", f"{job}/")[1]["status"] != status:
            await asyncio.sleep(0.2)

    return Engine(
        "Headrace",
        f"{installation.endpoint('ingest')}/v1/pipelines/{pipeline}/messages",
        installation.facts["demo"]["api_key"],
        installation.processes,
        lambda: set_running("start", "running"),
        lambda: set_running("stop", "stopped"),
    )


class Peer:
    """Benthos as two processes, like Headrace: one accepts messages, the other delivers them."""

    def __init__(self, folder: Path, var: Path, kafka: str, receiver: str) -> None:
        self._binary = folder / "benthos"
        self._var = var
        self.port, *admin = free_ports(3)
        topic = f"peer-{time.time_ns()}"
        client = AdminClient({"bootstrap.servers": kafka})
        client.create_topics([NewTopic(topic, 2, 1)])[topic].result()
        changes = {
            "127.0.0.1:19092": kafka,
            "peer_adapted": topic,
            "consumer_group: peer": f"consumer_group: {topic}",
            "127.0.0.1:4196": f"127.0.0.1:{self.port}",
            "127.0.0.1:4195": f"127.0.0.1:{admin[0]}",
            "127.0.0.1:4197": f"127.0.0.1:{admin[1]}",
            "http://127.0.0.1:18080/": receiver,
        }
        self._configs = []
        for name in ("http_to_kafka.yaml", "kafka_to_http.yaml"):
            text = (folder / name).read_text()
            for old, new in changes.items():
                text = text.replace(old, new)
            self._configs.append(var / name)
            self._configs[-1].write_text(text)
        self._taking = self._start(0)
        self._delivering: subprocess.Popen[bytes] | None = None

    def _start(self, index: int) -> "subprocess.Popen[bytes]":
        return subprocess.Popen([self._binary, "-c", self._configs[index]], stdout=subprocess.DEVNULL)

    async def start_delivering(self) -> None:
        if self._delivering is None:
            self._delivering = self._start(1)

    async def stop_delivering(self) -> None:
        if self._delivering is not None:
            self._delivering.terminate()
            self._delivering.wait()
            self._delivering = None

    def processes(self) -> list[psutil.Process]:
        return [psutil.Process(p.pid) for p in (self._taking, self._delivering) if p is not None]

    async def stop(self) -> None:
        await self.stop_delivering()
        self._taking.terminate()
        self._taking.wait()


async def _listening(port: int) -> None:
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.1)
        else:
            writer.close()
            return


async def benthos(folder: Path, installation: Installation, receiver: str) -> tuple[Peer, Engine]:
    peer = Peer(folder, installation.var, installation.endpoint("kafka"), receiver)
    kafka = [p for p in installation.processes() if "kafka.Kafka" in p.cmdline()]
    await peer.start_delivering()
    await _listening(peer.port)
    engine = Engine(
        "Benthos 4.27",
        f"http://127.0.0.1:{peer.port}/post",
        "",
        lambda: [*peer.processes(), *kafka],
        peer.start_delivering,
        peer.stop_delivering,
    )
    return peer, engine


async def compare(installation: Installation, folder: Path | None, seconds: float) -> list[Result]:
    times = Times()
    server, receiver = await receive(times)
    ours = headrace(installation, receiver)
    results = await measure(ours, times, seconds)
    if folder is not None:
        await ours.stop_delivering()
        peer, engine = await benthos(folder, installation, receiver)
        results += await measure(engine, times, seconds)
        await peer.stop()
    server.close()
    return results


def report(results: list[Result], seconds: float, usage: str) -> str:
    rows = "\n".join(
        f"| {r.engine} | {r.load} | {r.rate:,.0f} | {r.p50:.1f} | {r.p95:.1f} | {r.p99:.1f} | {r.cpu:.2f} "
        f"| {r.accepted:,} / {r.received:,} | {r.repeated} | {r.refused} |"
        for r in results
    )
    by = {(r.engine, r.load): r for r in results}
    ratios = "\n".join(
        f"- {r.load}: {by['Headrace', r.load].rate / r.rate:.2f} × the peer's rate"
        for r in results
        if r.engine != "Headrace"
    )
    return f"""# Delivery

{datetime.now(UTC):%Y-%m-%d}, {machine()}; Kafka, Spark, PostgreSQL, Valkey, the console, the load and the
receiver share it. HTTP → Kafka → Spark → HTTP, messages of 1 KB over {CONNECTIONS} connections, {seconds:.0f} s
each after a warm-up of three minutes, with breaker, ledger, attempts and billing enabled; generated by
`make bench-delivery`. The drain begins with the start of the delivering process, for Headrace a cold JVM.

Rates are measured at the receiver, until the last message has arrived. Milliseconds are measured from sending to
receiving; at full load and in the drain they are the time in the queue. CPU is that of the engine and Kafka, in
seconds per 1,000 messages.

| engine | load | received/s | p50 | p95 | p99 | CPU s/1,000 | accepted / received | repeated | refused |
|---|---|---|---|---|---|---|---|---|---|
{rows}

{ratios}

{usage}
"""


def _reconciled(installation: Installation) -> str:
    """Reconciles usage with billing events over the whole run."""
    time.sleep(5)
    until = datetime.now(UTC).isoformat()
    done = installation.manage_in("usage_reconcile", "--since", "2000-01-01", "--until", until)
    return "Reconciliation of usage and deliveries:\n\n```\n" + done.strip() + "\n```"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--peer", type=Path, help="folder with the peer; if omitted, only Headrace is measured")
    parser.add_argument("--keep", action="store_true", help="print the result without storing it")
    parser.add_argument("--jars", type=Path, help="use the jars in this folder instead of downloading them")
    arguments = parser.parse_args()
    with temporary_installation("bench", arguments.jars) as installation:
        installation.up()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            results = runner.run(compare(installation, arguments.peer, arguments.seconds))
        usage = _reconciled(installation)
    text = report(results, arguments.seconds, usage)
    print(text)
    if not arguments.keep:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
