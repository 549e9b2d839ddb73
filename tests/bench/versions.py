"""``make bench-versions OLD=folder``: the data plane of this checkout beside that of another one, in turns.

Both installations run at the same time on one machine, and loads alternate between them, with the order reversed each
round: what the machine does meanwhile falls on both. Each lane has a pair of its own: beside other outputs, one that
the machine makes slow has its queue set aside for them (ADR 5). OLD is a folder of another commit with its own
``.venv`` and built front end: ``git worktree add ../old COMMIT`` and ``make install frontend`` in it. Nothing in
``var`` of either is used except the jars.
"""

import argparse
import asyncio
import statistics
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import psutil
import uvloop

from backend.settings import ROOT
from tests.bench.load import Times, load, receive
from tests.bench.machine import machine
from tests.bench.spine import BODY, LANES
from tests.installation import Installation, temporary_installation

RESULTS = Path(__file__).parent / "results/versions.md"

_CONNECTIONS = 128
_RATE = 1000
_WARM_UP_SECONDS = 30.0
_PATIENCE_SECONDS = 300.0
_KINDS = {
    "kafka.Kafka": "Kafka",
    "org.apache.spark": "Spark's JVM",  # whose options name the daemon of its workers
    "worker_daemon": "Spark's Python",
    "pyspark.daemon": "Spark's Python",
    "backend.ingest": "ingest",
    "manage.py workers": "workers",
    "postgres": "PostgreSQL",
}
"""What a process is, by a part of its command line; the first that is found."""

Measured = dict[tuple[str, str], list[float]]
"""By the load and the measure, a value of each round."""


@dataclass
class Side:
    """One of the two, and what was measured of it."""

    name: str
    installation: Installation
    measured: Measured
    times: Times = field(default_factory=Times)
    url: str = ""

    def processes(self, kind: str) -> list[psutil.Process]:
        return [process for process in self.installation.processes() if _kind_of(process) == kind]

    def cpu(self) -> dict[str, float]:
        """Seconds by the kind of process, since each began."""
        used: dict[str, float] = defaultdict(float)
        for process in self.installation.processes():
            try:
                # With that of children which have ended: Spark replaces its workers when they have nothing to do.
                used[_kind_of(process)] += sum(process.cpu_times()[:4])
            except psutil.NoSuchProcess:
                continue
        return used

    async def post(self, seconds: float, rate: float | None = None, messages: int | None = None) -> None:
        await load(
            self.times.begin(),
            url=self.url,
            key=self.installation.facts["demo"]["api_key"],
            body=BODY,
            seconds=seconds,
            rate=rate,
            connections=_CONNECTIONS,
            messages=messages,
        )

    async def all_received(self) -> None:
        if not await self.times.all_received(_PATIENCE_SECONDS):
            raise TimeoutError(f"{self.name}: not all messages have arrived.")

    def note(self, run: str, before: dict[str, float], **measures: float) -> None:
        """Keeps what was measured, and the CPU that each message cost since ``before``."""
        received = len(self.times.received)
        costs = {kind: (used - before[kind]) * 1000 / received for kind, used in self.cpu().items()}
        # Its maintenance begins when it likes, in whichever run that is.
        everything = sum(cost for kind, cost in costs.items() if kind != "PostgreSQL")
        measures |= {"CPU of all but PostgreSQL, ms": everything}
        measures |= {f"CPU of {kind}, ms": costs[kind] for kind in ("Spark's Python", "ingest", "workers")}
        for measure, value in measures.items():
            self.measured[run, measure].append(value)
        print(
            f"{self.name}: {run}: " + ", ".join(f"{name} {value:.4g}" for name, value in measures.items()), flush=True
        )


def _kind_of(process: psutil.Process) -> str:
    try:
        command = " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""
    return next((kind for part, kind in _KINDS.items() if part in command), "other")


async def prepare(side: Side, lane: str) -> asyncio.Server:
    server, receiver = await receive(side.times)
    pipeline = side.installation.publish_pipeline(f"Bench {lane}", receiver, transforms=LANES[lane])
    side.url = f"{side.installation.endpoint('ingest')}/v1/pipelines/{pipeline}/messages"
    await asyncio.sleep(1)
    await side.post(_WARM_UP_SECONDS)
    await side.all_received()
    return server


async def full_load(side: Side, lane: str, seconds: float) -> None:
    before, began = side.cpu(), time.perf_counter()
    await side.post(seconds)
    await side.all_received()
    lasted = max(side.times.received.values()) - began
    side.note(f"{lane}, full load", before, **{"received/s": len(side.times.received) / lasted})


async def steady_load(side: Side, lane: str, seconds: float) -> None:
    before = side.cpu()
    await side.post(seconds, rate=_RATE)
    await side.all_received()
    cuts = statistics.quantiles(side.times.latencies(side.times.sent), n=100)
    side.note(f"{lane}, {_RATE:,}/s", before, **{"p50, ms": cuts[49], "p95, ms": cuts[94], "p99, ms": cuts[98]})


async def drain(side: Side, lane: str, messages: int) -> None:
    """What waits while Spark is stopped by a signal, and then goes on."""
    stopped = [*side.processes("Spark's JVM"), *side.processes("Spark's Python")]
    for process in stopped:
        process.suspend()
    try:
        await side.post(_PATIENCE_SECONDS, messages=messages)
    finally:
        for process in stopped:
            process.resume()
    before = side.cpu()
    await side.all_received()
    arrived = sorted(side.times.received.values())
    side.note(f"{lane}, drain", before, **{"received/s": len(arrived) / (arrived[-1] - arrived[0])})


async def measure(sides: list[Side], lane: str, rounds: int, seconds: float, messages: int) -> None:
    servers = [await prepare(side, lane) for side in sides]
    for number in range(rounds):
        order = sides if number % 2 == 0 else sides[::-1]
        for side in order:
            await full_load(side, lane, seconds)
        for side in order:
            await steady_load(side, lane, seconds)
        for side in order:
            await drain(side, lane, messages)
    for server in servers:
        server.close()


def commit_of(checkout: Path) -> str:
    describe = ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]
    return subprocess.run(describe, capture_output=True, text=True, check=True).stdout.strip()


def rows(old: Measured, new: Measured) -> Iterator[str]:
    for (run, name), after in new.items():
        before = old[run, name]
        values = " | ".join(" / ".join(f"{value:.4g}" for value in one) for one in (before, after))
        usual = statistics.median(before)
        ratio = f"{statistics.median(after) / usual:.2f}" if usual else "–"
        yield f"| {run} | {name} | {values} | {ratio} |"


def report(measured: dict[str, Measured], arguments: argparse.Namespace) -> str:
    old, new = measured
    table = "\n".join(rows(*measured.values()))
    return f"""# This version beside an older one

`make bench-versions`, {datetime.now(UTC):%Y-%m-%d}, {machine()}; Kafka, Spark, PostgreSQL, Valkey, the console,
the load and the receiver share it. {arguments.rounds} rounds in turns, with the order reversed each time, after warming
up. Messages of 1 KB over {_CONNECTIONS} connections; full load and {_RATE:,}/s for {arguments.seconds:.0f} s each, a
drain of {arguments.messages:,} messages that waited while Spark stood still. Times are from the request to the
receiver, CPU is per message received, and ratios are those of the medians.

| load | measure | {old} | {new} | ratio |
|---|---|---|---|---|
{table}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path, help="folder of another commit, installed and with its front end")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=25.0)
    parser.add_argument("--messages", type=int, default=60_000)
    parser.add_argument("--keep", action="store_true", help="print the result without storing it")
    arguments = parser.parse_args()
    checkouts = {commit_of(checkout): checkout for checkout in (arguments.old.resolve(), ROOT)}
    measured: dict[str, Measured] = {}
    for lane in LANES:
        with ExitStack() as stack:
            sides = []
            for name, checkout in checkouts.items():
                installation = stack.enter_context(temporary_installation("bench", ROOT / "var/jars", checkout))
                installation.up()
                sides.append(Side(name, installation, measured.setdefault(name, defaultdict(list))))
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(measure(sides, lane, arguments.rounds, arguments.seconds, arguments.messages))
    text = report(measured, arguments)
    print(text)
    if not arguments.keep:
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
