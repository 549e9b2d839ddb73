"""Two hundred outputs behind one lane task, twenty of which hang: the others do not wait for them.

A receiver that takes seconds to answer, as on a busy machine, may have messages set aside as well, which the platform
redelivers by itself; few, and none is lost."""

import asyncio
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from backend.domain import message as names
from backend.domain import routing
from backend.domain.message import Message, new_message_id, utc_now
from backend.domain.reasons import Reason
from backend.settings import ROOT, platform_settings
from spark_jobs.streaming.stop_channel import StopChannel
from tests.bench.load import NUMBER, Times, numbered, receive
from tests.bench.machine import machine
from tests.infra import KAFKA, VAR, Server
from tests.integration.kafka_ends import end_offset
from tests.waiting import LIMIT_SECONDS

OUTPUTS = 200
HANGING = 20
RATE = 800
RESULTS = ROOT / "tests/bench/results/fairness.md"
DEFAULTS: dict[str, Any] = {}
LARGEST = {"queue": 2000, "concurrency": 512}


@dataclass
class Tenants:
    """A lane task and the pipelines it delivers for."""

    topic: str
    folder: Path
    hanging: list[str] = field(default_factory=lambda: [str(uuid.uuid4()) for _ in range(HANGING)])
    others: list[str] = field(default_factory=lambda: [str(uuid.uuid4()) for _ in range(OUTPUTS - HANGING)])
    process: subprocess.Popen[bytes] | None = None

    def start(self, *, good: str, hanging: str, config: dict[str, Any]) -> StopChannel:
        # Without a breaker nothing but the window's sharing keeps them apart.
        config = config | {"breaker": {"errors": 1000}}
        outputs = {p: (hanging, config) for p in self.hanging} | {p: (good, config) for p in self.others}
        path = self.folder / "outputs.json"
        path.write_text(json.dumps(outputs))
        channel = StopChannel("127.0.0.1", platform_settings().service_token)
        command = [
            sys.executable,
            "-m",
            "tests.integration.data_plane.fair_lane",
            self.topic,
            str(path),
            str(channel.address[1]),
        ]
        with (VAR / f"{self.topic}.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)
        return channel


@pytest.fixture
def tenants(kafka: Server, empty_configuration: None, pipeline_topics: None, tmp_path: Path) -> Iterator[Tenants]:
    topic = f"fair-{uuid.uuid4()}"
    admin = AdminClient({"bootstrap.servers": KAFKA})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    made = Tenants(topic, tmp_path)
    yield made
    if made.process is not None:
        made.process.kill()
        made.process.wait()


class Load:
    """Messages of all tenants in turn, half of them for the outputs that hang."""

    def __init__(self, tenants: Tenants, times: Times) -> None:
        self._tenants = tenants
        self._times = times
        self._producer = Producer({"bootstrap.servers": KAFKA, "linger.ms": 1})

    def send(self, pipeline: str, number: int) -> None:
        body = b"{%s}" % numbered(number)
        message_id = new_message_id()
        message = Message(message_id, pipeline, 1, message_id.encode(), body, "application/json", utc_now(), ())
        self._producer.produce(self._tenants.topic, body, message.key, headers=message.headers())
        self._producer.poll(0)

    def send_to_other(self, index: int) -> None:
        number = self._times.number()
        self._times.sent[number] = time.perf_counter()
        self.send(self._tenants.others[index % len(self._tenants.others)], number)

    async def run(self, seconds: float, *, with_hanging: bool) -> None:
        began, count = time.perf_counter(), 0
        while (elapsed := time.perf_counter() - began) < seconds:
            while count < RATE / 2 * elapsed:
                self.send_to_other(count)
                if with_hanging:
                    self.send(self._tenants.hanging[count % HANGING], 0)
                count += 1
            await asyncio.sleep(0.002)
        self._producer.flush(LIMIT_SECONDS)


class SetAside:
    """Messages for outputs that do not hang which became dead letters, to be redelivered soon."""

    def __init__(self, tenants: Tenants) -> None:
        self.numbers: set[int] = set()
        self._others = {pipeline.encode() for pipeline in tenants.others}
        self._consumer = Consumer({"bootstrap.servers": KAFKA, "group.id": tenants.topic})
        self._consumer.assign([TopicPartition(routing.DEAD_LETTER, 0, end_offset(routing.DEAD_LETTER))])

    def read(self) -> None:
        for record in self._consumer.consume(1000, 0):
            headers: dict[str, Any] = dict(record.headers() or ())
            number = NUMBER.search(record.value() or b"")
            if number is not None and headers[names.PIPELINE] in self._others:
                assert headers[names.DEAD_REASON].decode() == Reason.OUTPUT_SATURATED
                self.numbers.add(int(number[1]))

    def close(self) -> None:
        self._consumer.close()


@dataclass
class Measured:
    """Of messages for outputs that do not hang."""

    latencies: list[float]
    """Milliseconds from Kafka to the receiver, in ascending order."""
    set_aside: int

    @property
    def part_set_aside(self) -> float:
        """Of those that were delivered."""
        return self.set_aside / len(self.latencies)


async def all_ended(times: Times, set_aside: SetAside, seconds: float) -> None:
    async with asyncio.timeout(seconds):
        while times.sent.keys() - times.received.keys() - set_aside.numbers:
            set_aside.read()
            await asyncio.sleep(0.02)


async def measure(tenants: Tenants, seconds: float, config: dict[str, Any], *, patience: float) -> list[Measured]:
    """Without the outputs that hang, and beside them."""
    times = Times()
    set_aside = SetAside(tenants)
    good, url = await receive(times)
    # Accepts connections and requests, and never answers.
    hanging = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
    channel = tenants.start(good=url, hanging=f"http://127.0.0.1:{hanging.sockets[0].getsockname()[1]}/", config=config)
    load = Load(tenants, times)
    try:
        for index in range(len(tenants.others)):
            load.send_to_other(index)  # opens every client
        await all_ended(times, set_aside, LIMIT_SECONDS)
        measured = []
        for with_hanging in (False, True):
            times.begin()
            await load.run(seconds, with_hanging=with_hanging)
            await all_ended(times, set_aside, patience)
            ended_otherwise = times.sent.keys() - times.received.keys()
            measured.append(Measured(times.latencies(times.sent), len(ended_otherwise)))
        return measured
    finally:
        channel.stop()
        good.close()
        hanging.close()
        set_aside.close()


@pytest.mark.parametrize("config", [DEFAULTS, LARGEST], ids=["defaults", "largest"])
async def test_outputs_that_hang_do_not_hold_up_others(tenants: Tenants, config: dict[str, Any]) -> None:
    # Their attempts end after two minutes, so nobody who waited for one would come in time.
    alone, beside = await measure(tenants, 8.0, config | {"timeout_seconds": 120}, patience=80)
    assert alone.part_set_aside < 0.1
    assert beside.latencies[-1] < 80_000
    assert beside.part_set_aside < 0.1


@pytest.mark.long
async def test_measured(tenants: Tenants) -> None:
    """``make bench-fairness``."""
    alone, beside = await measure(tenants, 40.0, DEFAULTS, patience=60)
    rows = [
        f"| {name} | {len(measured.latencies):,} | {_at(measured, 0.5):.1f} | {_at(measured, 0.95):.1f} "
        f"| {_at(measured, 0.99):.1f} | {measured.latencies[-1]:.1f} | {measured.set_aside:,} |"
        for name, measured in (("without outputs that hang", alone), ("beside 20 that hang", beside))
    ]
    RESULTS.write_text(
        f"# Fairness\n\n`make bench-fairness`: one lane task, {OUTPUTS} outputs, {HANGING} of which hang (no answer "
        f"within 10 s, no breaker), each group with {RATE // 2} messages/s. Milliseconds from Kafka to the receiver of "
        "the outputs that do not hang; messages that were set aside are redelivered later.\n\n"
        "| | messages | p50 | p95 | p99 | longest | set aside |\n|---|---|---|---|---|---|---|\n"
        + "\n".join(rows)
        + f"\n\n{machine()}\n"
    )
    assert _at(beside, 0.99) < 200


def _at(measured: Measured, part: float) -> float:
    return measured.latencies[int(len(measured.latencies) * part)]
