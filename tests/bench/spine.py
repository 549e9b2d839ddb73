"""``make bench-spine``: what one message costs and how many go through, in both lanes.

Brings up an installation of its own, in a folder and on ports of its own; nothing of ``var`` is
touched but the built front end.
"""

import argparse
import asyncio
import statistics
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uvloop

from tests.bench.load import Times, load, receive
from tests.bench.machine import cost, machine
from tests.installation import Installation, temporary_installation

RESULTS = Path(__file__).parent / "results/spine.md"
TRANSFORMS: list[dict[str, Any]] = [
    {"type": "drop_unless", "path": "user.country", "condition": "in", "value": ["BR", "PT"]},
    {"type": "rename", "path": "user", "to": "customer"},
    {"type": "set", "path": "source", "value": "bench"},
]
LANES = {"untransformed": [], "transformed": TRANSFORMS}
BODY = (
    b'{%s, "order": {"id": "A-1", "amount": 12.50}, "user": {"name": "Ana", "country": "BR"}, "note": "'
    + b"x" * 870
    + b'"}'
)
RATE = 200
WARM_UP_SECONDS = 15.0
SETTLE_SECONDS = 10.0
DRAIN_SECONDS = 300.0


@dataclass(frozen=True)
class Bench:
    """What every run shares."""

    times: Times
    key: str


@dataclass
class Result:
    """One run. Rates are messages per second, times milliseconds from the 202 to the receiver."""

    lane: str
    load: str
    accepted: int
    received: int
    repeated: int
    refused: int
    accepted_rate: float
    received_rate: float
    p50: float
    p95: float
    p99: float


async def run(bench: Bench, lane: str, url: str, seconds: float, rate: int | None) -> Result:
    times = bench.times.begin()
    began = time.perf_counter()
    await load(times, url=url, key=bench.key, body=BODY, seconds=seconds, rate=rate)
    deadline = time.monotonic() + DRAIN_SECONDS
    while len(times.received) < len(times.accepted) and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    latencies = times.latencies(times.accepted)
    lasted = max(times.received.values()) - began
    cuts = statistics.quantiles(latencies, n=100)
    return Result(
        lane=lane,
        load=f"{rate}/s" if rate else "full",
        accepted=len(times.accepted),
        received=len(times.received),
        repeated=times.repeated,
        refused=times.refused,
        accepted_rate=len(times.accepted) / seconds,
        received_rate=len(times.received) / lasted,
        p50=cuts[49],
        p95=cuts[94],
        p99=cuts[98],
    )


async def measure(installation: Installation, seconds: float) -> list[Result]:
    bench = Bench(Times(), installation.facts["demo"]["api_key"])
    server, receiver = await receive(bench.times)
    results = []
    for lane, transforms in LANES.items():
        pipeline = installation.publish_pipeline(f"Bench {lane} {time.time_ns()}", receiver, transforms=transforms)
        url = f"{installation.endpoint('ingest')}/v1/pipelines/{pipeline}/messages"
        await asyncio.sleep(1)
        await run(bench, lane, url, WARM_UP_SECONDS, None)
        for rate in (RATE, None):
            await asyncio.sleep(SETTLE_SECONDS)
            results.append(await run(bench, lane, url, seconds, rate))
            print(results[-1], flush=True)
    server.close()
    return results


def started(installation: Installation) -> float:
    began = time.monotonic()
    installation.up()
    return time.monotonic() - began


def report(cold: float, warm: float, idle: tuple[float, float], results: list[Result], seconds: float) -> str:
    rows = "\n".join(
        f"| {r.lane} | {r.load} | {r.accepted_rate:,.0f} | {r.received_rate:,.0f} | {r.p50:.1f} | {r.p95:.1f} "
        f"| {r.p99:.1f} | {r.accepted:,} / {r.received:,} | {r.repeated} | {r.refused} |"
        for r in results
    )
    return f"""# The spine

{datetime.now(UTC):%Y-%m-%d}, {machine()}; Kafka, Spark, PostgreSQL, Valkey, the console, the load and the
receiver share it. Messages of 1 KB over 64 connections, {seconds:.0f} s each; made by `make bench-spine`.

Milliseconds run from the HTTP input's 202 to the receiver. At full load they are the time in the
queue: more is accepted than delivered, and the rest waits in Kafka. "Received/s" counts until the
last message was there.

| lane | load | accepted/s | received/s | p50 | p95 | p99 | accepted / received | repeated | refused |
|---|---|---|---|---|---|---|---|---|---|
{rows}

| | measured | aim |
|---|---|---|
| start, jars downloaded | {cold:.0f} s | |
| start, warm | {warm:.0f} s | under 40 s |
| idle stack, cores | {idle[0]:.2f} | under 0.3 |
| idle stack, memory | {idle[1]:.1f} GiB | under 4 GiB |
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--keep", action="store_true", help="print only; keep the stored result")
    parser.add_argument("--jars", type=Path, help="take the jars from this folder instead of downloading them")
    arguments = parser.parse_args()
    with temporary_installation("bench", arguments.jars) as installation:
        cold = started(installation)
        installation.down()
        warm = started(installation)
        time.sleep(20)
        idle = cost(installation.processes(), arguments.seconds)
        print(f"cold {cold:.0f} s, warm {warm:.0f} s, idle {idle[0]:.2f} cores {idle[1]:.1f} GiB", flush=True)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            results = runner.run(measure(installation, arguments.seconds))
    text = report(cold, warm, idle, results, arguments.seconds)
    print(text)
    if not arguments.keep:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
