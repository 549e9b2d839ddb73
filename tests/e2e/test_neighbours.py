"""Nine pipelines carry 200 messages a second while a tenth gets every hostile message, request and answer that is
known, again and again."""

import asyncio
import json
import statistics
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, KafkaError

from backend.domain.message import MESSAGE_ID
from tests.bench.load import Times, load, receive
from tests.bench.machine import machine
from tests.e2e.neighbours.hostile import CASES, REFUSALS, Hostile, Receiver, publish
from tests.e2e.test_messages import name
from tests.installation import Installation, call
from tests.receiver import receiver_in_thread
from tests.waiting import LIMIT_SECONDS, PATIENCE, wait_until, wait_until_async

RESULTS = Path(__file__).parents[1] / "bench/results/neighbours.md"
NEIGHBOURS = 9
RATE = 200 / NEIGHBOURS
STEPS: list[dict[str, Any]] = [{"type": "set", "path": "source", "value": "test"}]
BODY = b'{%s, "note": "' + b"x" * 480 + b'"}'
CONNECTIONS = 8
"""Of each neighbour's sender."""


@dataclass
class Neighbour:
    pipeline: str
    times: Times
    received: int = 0
    """Before its ``times`` began."""


@dataclass
class Watch:
    """What health said meanwhile, and how often."""

    states: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def running(self, installation: Installation) -> Iterator["Watch"]:
        stop = Event()

        def watch() -> None:
            while not stop.wait(2):
                for component, state in installation.components().items():
                    if state != "ok":
                        self.states[f"{component}: {state}"] += 1

        thread = Thread(target=watch)
        thread.start()
        try:
            yield self
        finally:
            stop.set()
            thread.join()


@dataclass
class Phase:
    name: str
    latencies: list[list[float]]
    """Milliseconds from sending to receiving, sorted, of each neighbour."""

    def row(self) -> str:
        together = sorted(value for one in self.latencies for value in one)
        cuts = statistics.quantiles(together, n=100)
        worst = max(statistics.quantiles(one, n=100)[98] for one in self.latencies)
        numbers = [cuts[49], cuts[94], cuts[98], together[-1], worst]
        return f"| {self.name} | {len(together):,} | {' | '.join(f'{number:.0f}' for number in numbers)} |"


def test_neighbours_hostile_messages_stop_nobody(installation: Installation) -> None:
    asyncio.run(_run(installation, alone=1, beside=8, pause=4))


@pytest.mark.long
def test_neighbours_hostile_messages_stop_nobody_in_ten_minutes(installation: Installation) -> None:
    RESULTS.write_text(asyncio.run(_run(installation, warm_up=60, alone=60, beside=600, pause=2)))


async def _run(installation: Installation, *, warm_up: float = 0, alone: float, beside: float, pause: float) -> str:
    """Checks every account afterwards, and returns the report."""
    async with AsyncExitStack() as servers:
        neighbours = [await _neighbour(installation, number, servers) for number in range(NEIGHBOURS)]
        answers = Receiver()
        with receiver_in_thread(answers.answer) as inbox:
            hostile = await asyncio.to_thread(publish, installation, inbox.url)
            await asyncio.to_thread(_await_accepting, installation, neighbours)
            await asyncio.to_thread(hostile.await_accepting)
            if warm_up:
                await _phase("warm-up", installation, neighbours, warm_up)
            driver = installation.spark()
            phases = [await _phase("alone", installation, neighbours, alone)]
            stop, watch = Event(), Watch()
            with watch.running(installation):
                sending = asyncio.create_task(asyncio.to_thread(hostile.run, stop, pause))
                phases.append(await _phase("beside hostile messages", installation, neighbours, beside))
                stop.set()
                await sending
            await asyncio.to_thread(_check_hostile, hostile, answers)
        await asyncio.to_thread(_check_usage, installation, neighbours)
        assert installation.spark() == driver
        await asyncio.to_thread(wait_until, lambda: set(installation.components().values()) == {"ok"})
        return _report(phases, hostile, answers, watch, beside)


async def _neighbour(installation: Installation, number: int, servers: AsyncExitStack) -> Neighbour:
    """Every other one has a step."""
    times = Times()
    server, url = await receive(times)
    servers.callback(server.close)
    steps = STEPS if number % 2 else []
    pipeline = await asyncio.to_thread(
        installation.publish_pipeline, f"Neighbour {number + 1} {name()}", url, transforms=steps
    )
    return Neighbour(pipeline, times)


def _await_accepting(installation: Installation, neighbours: list[Neighbour]) -> None:
    """Publishing takes effect within a second; an empty batch is refused only by a pipeline that is published."""
    key, url = installation.facts["demo"]["api_key"], f"{installation.endpoint('ingest')}/v1/pipelines/%s/messages"

    def accepts(neighbour: Neighbour) -> bool:
        return call("POST", url % neighbour.pipeline, b"\n", key, "application/x-ndjson")[0] == 400

    wait_until(lambda: all(map(accepts, neighbours)))


async def _phase(name: str, installation: Installation, neighbours: list[Neighbour], seconds: float) -> Phase:
    for neighbour in neighbours:
        neighbour.received += len(neighbour.times.received)
        neighbour.times.begin()
    key = installation.facts["demo"]["api_key"]
    ingest = installation.endpoint("ingest")
    await asyncio.gather(
        *(
            load(
                neighbour.times,
                url=f"{ingest}/v1/pipelines/{neighbour.pipeline}/messages",
                key=key,
                body=BODY,
                seconds=seconds,
                rate=RATE,
                connections=CONNECTIONS,
            )
            for neighbour in neighbours
        )
    )

    async def nothing_lost() -> bool:
        return all(neighbour.times.accepted.keys() <= neighbour.times.received.keys() for neighbour in neighbours)

    await wait_until_async(nothing_lost)
    assert [neighbour.times.repeated for neighbour in neighbours] == [0] * NEIGHBOURS
    return Phase(name, [neighbour.times.latencies(neighbour.times.sent) for neighbour in neighbours])


def _check_usage(installation: Installation, neighbours: list[Neighbour]) -> None:
    expected = {neighbour.pipeline: neighbour.received + len(neighbour.times.received) for neighbour in neighbours}

    def usage() -> dict[str, int]:
        return {pipeline: sum(_usage(installation, pipeline).values()) for pipeline in expected}

    wait_until(lambda: usage() == expected, explain=lambda: (usage(), expected))
    for pipeline in expected:
        assert installation.api("GET", f"dead-letters/?pipeline={pipeline}")[1]["results"] == []


def _usage(installation: Installation, pipeline: str) -> Counter[str]:
    """Billed deliveries by output."""
    status, rows = installation.api("GET", f"usage/?step=day&pipeline={pipeline}")
    assert status == 200
    billed: Counter[str] = Counter()
    for row in rows:
        billed[row["output"]] += row["deliveries"]
    return billed


def _check_hostile(hostile: Hostile, answers: Receiver) -> None:
    """Every hostile message, too, was delivered to each output, or is a dead letter for the right reason."""
    assert hostile.unexpected == []
    outputs: dict[str, Callable[[], Counter[str]]] = {
        "waits": lambda: answers.taken["waits"],
        "note": lambda: answers.taken["note"],
        "narrow": lambda: _written(hostile.installation, hostile.narrow),
        "wide": lambda: _written(hostile.installation, hostile.wide),
    }
    made = sum(case.messages for case in hostile.accepted.values() if "" not in case.letters)
    refused = {"odd": made, "held": made}
    reasons = {"odd": {"answer", "http_100", "output_saturated"}, "held": {"http_429", "rate_limited"}}
    for case in hostile.accepted.values():
        for output, reason in case.letters.items():
            refused[output] = refused.get(output, 0) + case.messages
            reasons.setdefault(output, set()).add(reason)

    def is_settled() -> bool:
        waiting = letters(hostile)
        return (
            {output: counted.total() for output, counted in waiting.items()} == refused
            and all(counted.keys() <= reasons[output] for output, counted in waiting.items())
        )  # fmt: skip

    wait_until(is_settled, 5 * LIMIT_SECONDS, explain=lambda: (letters(hostile), refused, reasons))
    delivered = {output: made - refused.get(output, 0) for output in outputs}
    assert {output: len(taken()) for output, taken in outputs.items()} == delivered
    wait_until(lambda: _usage(hostile.installation, hostile.pipeline) == delivered)


def letters(hostile: Hostile) -> dict[str, Counter[str]]:
    """The reasons of the pipeline's dead letters that wait, by output."""
    counted: dict[str, Counter[str]] = {}
    statement = (
        "SELECT output, reason, count(*) FROM deliveries_deadletter "
        "WHERE pipeline_id = %s AND state IN ('waiting', 'redelivering') GROUP BY 1, 2"
    )
    with psycopg.connect(hostile.installation.database_url) as connection:
        for output, reason, count in connection.execute(statement, [hostile.pipeline]):
            counted.setdefault(output, Counter())[reason] = count
    return counted


def _written(installation: Installation, topic: str) -> Counter[str]:
    """How often each message was written to the topic."""
    settings = {
        "bootstrap.servers": installation.endpoint("kafka"),
        "group.id": "neighbours",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
    }
    written: Counter[str] = Counter()
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe([topic])
        ends = 0
        while ends < 2:
            record = consumer.poll(LIMIT_SECONDS * PATIENCE)
            assert record is not None
            if (error := record.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ends += 1
                continue
            written[dict(record.headers() or ())[MESSAGE_ID].decode()] += 1
    return written


def _report(phases: list[Phase], hostile: Hostile, answers: Receiver, watch: Watch, seconds: float) -> str:
    rows = "\n".join(phase.row() for phase in phases)
    sent = Counter(case.name for case in hostile.accepted.values())
    cases = "\n".join(f"| {case.name} | {sent[case.name]} |" for case in CASES)
    refusals = "\n".join(f"- {refusal.name}: {refusal.status}" for refusal in REFUSALS)
    dead = "\n".join(
        f"| {output or 'at a step'} | {reason} | {count:,} |"
        for output, reasons in sorted(letters(hostile).items())
        for reason, count in sorted(reasons.items())
    )
    taken = json.dumps({output: sum(counted.values()) for output, counted in answers.taken.items()})
    health = ", ".join(f"{state} ({count} times)" for state, count in watch.states.items()) or "ok, always"
    return f"""# Neighbours

{datetime.now(UTC):%Y-%m-%d}, {machine()}; the whole installation, the senders and the receivers share it.
Written by `make test-long`. Nine pipelines carry 200 messages of 500 bytes a second together, first alone, then for
{seconds:,.0f} s while a tenth pipeline gets every hostile message, request and answer that is known,
{hostile.passes:,} times each. Milliseconds from sending to receiving; "worst" is the largest p99 of one pipeline.

| | messages | p50 | p95 | p99 | longest | worst |
|---|---|---|---|---|---|---|
{rows}

No message of the nine was lost, delivered twice or billed otherwise than once. Health said: {health}.

What the tenth pipeline took:

| message | times |
|---|---|
{cases}

What it refused in every pass:

{refusals}

Its dead letters; its receivers took {taken}:

| output | reason | number |
|---|---|---|
{dead}
"""
