"""Two hundred outputs behind one lane task, twenty of which hang: the others do not wait for them."""

import asyncio
import json
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import redis
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from backend.domain.message import Message, new_message_id, utc_now
from backend.manager_api import snapshot as stored
from backend.settings import ROOT, platform_settings
from spark_jobs.streaming.stop_channel import StopChannel
from tests.bench.load import Times, numbered, receive
from tests.bench.machine import machine
from tests.infra import KAFKA, REDIS_URL, VAR, Server
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
def tenants(kafka: Server, redis_server: Server, pipeline_topics: None, tmp_path: Path) -> Iterator[Tenants]:
    topic = f"fair-{uuid.uuid4()}"
    admin = AdminClient({"bootstrap.servers": KAFKA})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    # A task starts with any configuration it can have; these outputs are described by a file.
    redis.from_url(REDIS_URL).hset(stored.INGEST_KEYS, "unused", stored.IngestKey("unused", uuid.uuid4(), 1).to_json())
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


async def all_received(times: Times, seconds: float) -> None:
    async with asyncio.timeout(seconds):
        while len(times.received) < len(times.sent):
            await asyncio.sleep(0.02)


async def latencies(tenants: Tenants, seconds: float, config: dict[str, Any], *, patience: float) -> list[list[float]]:
    """Milliseconds from Kafka to the receiver for those that do not hang: without the others, and beside them."""
    times = Times()
    good, url = await receive(times)
    # Accepts connections and requests, and never answers.
    hanging = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
    channel = tenants.start(good=url, hanging=f"http://127.0.0.1:{hanging.sockets[0].getsockname()[1]}/", config=config)
    load = Load(tenants, times)
    try:
        for index in range(len(tenants.others)):
            load.send_to_other(index)  # opens every client
        await all_received(times, LIMIT_SECONDS)
        measured = []
        for with_hanging in (False, True):
            times.begin()
            await load.run(seconds, with_hanging=with_hanging)
            await all_received(times, patience)
            measured.append(times.latencies(times.sent))
        return measured
    finally:
        channel.stop()
        good.close()
        hanging.close()


@pytest.mark.parametrize("config", [DEFAULTS, LARGEST], ids=["defaults", "largest"])
async def test_outputs_that_hang_do_not_hold_up_others(tenants: Tenants, config: dict[str, Any]) -> None:
    # Their attempts end after two minutes, so nobody who waited for one would come in time.
    _, beside = await latencies(tenants, 8.0, config | {"timeout_seconds": 120}, patience=80)
    assert beside[-1] < 80_000


@pytest.mark.long
async def test_measured(tenants: Tenants) -> None:
    """``make bench-fairness``."""
    alone, beside = await latencies(tenants, 40.0, DEFAULTS, patience=60)
    rows = [
        f"| {name} | {len(values):,} | {statistics.median(values):.1f} | {values[int(len(values) * 0.95)]:.1f} "
        f"| {values[int(len(values) * 0.99)]:.1f} | {values[-1]:.1f} |"
        for name, values in (("without outputs that hang", alone), ("beside 20 that hang", beside))
    ]
    RESULTS.write_text(
        f"# Fairness\n\n`make bench-fairness`: one lane task, {OUTPUTS} outputs, {HANGING} of which hang (no answer "
        f"within 10 s, no breaker), each group with {RATE // 2} messages/s. Milliseconds from Kafka to the receiver of "
        "the outputs that do not hang.\n\n"
        "| | messages | p50 | p95 | p99 | longest |\n|---|---|---|---|---|---|\n"
        + "\n".join(rows)
        + f"\n\n{machine()}\n"
    )
    assert beside[int(len(beside) * 0.99)] < 200
