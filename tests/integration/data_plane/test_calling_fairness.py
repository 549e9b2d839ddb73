"""Pipelines whose APIs hang, in front of one whose API answers, in either lane that runs waiting steps."""

import asyncio
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import web
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from backend.domain import routing
from backend.domain.message import DEAD_REASON, MESSAGE_ID, PIPELINE, Message, new_message_id, utc_now
from backend.settings import ROOT, platform_settings
from spark_jobs.streaming.stop_channel import StopChannel
from tests.infra import KAFKA, VAR, Server
from tests.receiver import receiver
from tests.waiting import LIMIT_SECONDS, wait_until

GOOD = 100
SECONDS = 45
"""Less than the minute in which a call ends that hangs."""


@dataclass
class CallingLane:
    """A lane task of its own topic."""

    topic: str
    folder: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self, stage: str, urls: dict[str, str]) -> StopChannel:
        path = self.folder / "pipelines.json"
        path.write_text(json.dumps(urls))
        channel = StopChannel("127.0.0.1", platform_settings().service_token)
        module = "tests.integration.data_plane.calling_lane"
        command = [sys.executable, "-m", module, stage, self.topic, str(path), str(channel.address[1])]
        with (VAR / f"{self.topic}.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)
        return channel

    def send(self, *pipelines: str, count: int) -> None:
        """So many messages of each."""
        self.produce(
            message_of(pipeline, 1, message_id.encode(), message_id)
            for _ in range(count)
            for pipeline in pipelines
            for message_id in [new_message_id()]
        )

    def produce(self, messages: Iterable[Message]) -> None:
        producer = Producer({"bootstrap.servers": KAFKA, "linger.ms": 5})
        for message in messages:
            producer.produce(self.topic, message.body, message.key, headers=message.headers())
            producer.poll(0)
        assert producer.flush(LIMIT_SECONDS) == 0


def message_of(pipeline: str, version: int, key: bytes, message_id: str) -> Message:
    return Message(message_id, pipeline, version, key, b"{}", "application/json", utc_now(), slip=(routing.ADAPTED,))


@pytest.fixture
def lane(kafka: Server, empty_configuration: None, pipeline_topics: None, tmp_path: Path) -> Iterator[CallingLane]:
    topic = f"calling-{uuid.uuid4()}"
    admin = AdminClient({"bootstrap.servers": KAFKA})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    made = CallingLane(topic, tmp_path)
    yield made
    if made.process is not None:
        made.process.kill()
        made.process.wait()


class Written:
    """Reads what lanes commit to topics from now on."""

    def __init__(self, *topics: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": KAFKA, "group.id": str(uuid.uuid4()), "isolation.level": "read_committed"}
        )
        wait_until(lambda: self._assign_ends(topics))

    def _assign_ends(self, topics: tuple[str, ...]) -> bool:
        """False while the leader of a topic that was just created is not elected."""
        partitions = [TopicPartition(topic, 0) for topic in topics]
        try:
            ends = [self._consumer.get_watermark_offsets(partition, 10)[1] for partition in partitions]
        except KafkaException:
            return False
        self._consumer.assign([TopicPartition(topic, 0, end) for topic, end in zip(topics, ends, strict=True)])
        return True

    def read(self) -> list[dict[str, bytes]]:
        """The headers of the next records."""
        return [dict(record.headers() or []) for record in self._consumer.consume(1000, 0.2)]  # type: ignore[arg-type]

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.parametrize(
    ("stage", "hanging", "each"),
    [("adapting_transformer", 20, 150), ("adapting_slow", 4, 800), ("adapting_slow", 1, 3000)],
    ids=["first lane", "slow lane", "slow lane, one alone"],
)
async def test_apis_that_hang_do_not_hold_up_another(lane: CallingLane, stage: str, hanging: int, each: int) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response(1)

    hangs = asyncio.Event()

    class Silent(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            hangs.set()

    silent = await asyncio.get_running_loop().create_server(Silent, "127.0.0.1", 0)
    # What has no place in the first lane goes through the slow one.
    written = Written(routing.ADAPTED, routing.TRANSFORMER_SLOW)
    good, *hang = (str(uuid.uuid4()) for _ in range(1 + hanging))
    async with receiver(answer) as api:
        url = f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}/"
        lane.send(*hang, count=each)
        lane.send(good, count=GOOD)
        channel = lane.start(stage, dict.fromkeys(hang, url) | {good: api.url})
        await asyncio.wait_for(hangs.wait(), LIMIT_SECONDS)  # until then the lane starts
        began, arrived = time.monotonic(), 0
        while arrived < GOOD and time.monotonic() - began < SECONDS:
            headers = await asyncio.to_thread(written.read)
            arrived += sum(one[PIPELINE].decode() == good for one in headers)
        print(f"{arrived} of {GOOD} after {time.monotonic() - began:.1f} s.")
        assert arrived == GOOD
    written.close()
    channel.stop()
    silent.close()


async def test_a_slow_api_that_is_alone_fills_the_slow_lane(lane: CallingLane) -> None:
    """Its messages wait in Kafka; as dead letters they would come later."""

    async def answer(_: web.Request) -> web.Response:
        await asyncio.sleep(0.1)
        return web.json_response(1)

    written, dead = Written(routing.ADAPTED), Written(routing.DEAD_LETTER)
    pipeline = str(uuid.uuid4())
    async with receiver(answer) as api:
        lane.send(pipeline, count=4000)
        channel = lane.start("adapting_slow", {pipeline: api.url})
        began, arrived = time.monotonic(), 0
        while arrived < 4000 and time.monotonic() - began < LIMIT_SECONDS:
            headers = await asyncio.to_thread(written.read)
            arrived += sum(one[PIPELINE].decode() == pipeline for one in headers)
        assert arrived == 4000
    assert [one for one in dead.read() if one[PIPELINE].decode() == pipeline and DEAD_REASON in one] == []
    for reader in (written, dead):
        reader.close()
    channel.stop()


async def test_a_version_whose_steps_never_wait_overtakes_no_message_of_its_key(lane: CallingLane) -> None:
    is_answered = asyncio.Event()

    async def answer(_: web.Request) -> web.Response:
        await is_answered.wait()
        return web.json_response(1)

    written = Written(routing.ADAPTED)
    pipeline = str(uuid.uuid4())
    former, newer, other = (new_message_id() for _ in range(3))
    arrived: list[str] = []

    async def until_arrived(*expected: str) -> None:
        async with asyncio.timeout(60):
            while not set(expected) <= set(arrived):
                arrived.extend(one[MESSAGE_ID].decode() for one in await asyncio.to_thread(written.read))

    async with receiver(answer) as api:
        lane.produce(
            [
                message_of(pipeline, 1, b"key", former),
                message_of(pipeline, 2, b"key", newer),
                message_of(pipeline, 2, b"another key", other),
            ]
        )
        channel = lane.start("adapting_transformer", {pipeline: api.url})
        await until_arrived(other)
        await api.received(1)
        is_answered.set()
        await until_arrived(former, newer)
    written.close()
    channel.stop()
    assert arrived == [other, former, newer]
