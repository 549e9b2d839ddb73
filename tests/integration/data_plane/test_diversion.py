"""Which pipelines follow their earlier messages into the slow lane, read from a real topic."""

import asyncio
import threading
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from backend.domain import message as names
from backend.domain import routing
from backend.domain.message import Message
from backend.domain.pipeline import PipelineConfig, PipelineSnapshot
from backend.manager_api.client import ConfigUnavailableError
from backend.settings import KafkaSettings, Settings, platform_settings
from spark_jobs.jobs.adapting_transformer import TransformerHandler
from spark_jobs.streaming.backlog import Backlog, BacklogReader
from spark_jobs.streaming.diversion import Diversion
from spark_jobs.streaming.lane import LaneServices, Position
from spark_jobs.streaming.window import Progress
from tests.infra import KAFKA, Server
from tests.waiting import LIMIT_SECONDS, wait_until_async


class SlowLane:
    """The slow lane's topic, its committed progress, and the diversion before it."""

    def __init__(self) -> None:
        self.topic = f"slow-{uuid.uuid4()}"
        self.group = f"group-{self.topic}"
        admin = AdminClient({"bootstrap.servers": KAFKA})
        admin.create_topics([NewTopic(self.topic, 1, 1)])[self.topic].result()
        self._producer = Producer({"bootstrap.servers": KAFKA, "linger.ms": 5})
        self.committed = 0
        """What the lane before it has committed."""

    def open(self) -> None:
        kafka = platform_settings().kafka
        self.diversion = Diversion(kafka, topic=self.topic, group=self.group, committed=lambda _: self.committed)

    def write(self, pipeline: str, count: int = 1, body: bytes = b"") -> None:
        for _ in range(count):
            self._producer.produce(self.topic, body, headers=[(names.PIPELINE, pipeline.encode())])
            self._producer.poll(0)
        assert self._producer.flush(LIMIT_SECONDS) == 0

    def finish(self, progress: Progress) -> None:
        consumer = Consumer({"bootstrap.servers": KAFKA, "group.id": self.group})
        offset = TopicPartition(self.topic, 0, progress.offset, metadata=progress.metadata)
        consumer.commit(offsets=[offset], asynchronous=False)
        consumer.close()

    def follows(self, pipeline: str) -> bool:
        return self.diversion.follows(pipeline, Position(0, self.committed), waits=True)

    async def known(self) -> None:
        await asyncio.wait_for(self.diversion.known(Position(0, 0)), LIMIT_SECONDS)


@pytest.fixture
async def lane(kafka: Server) -> AsyncIterator[SlowLane]:
    lane = SlowLane()
    lane.open()
    yield lane
    await lane.diversion.close()


async def test_after_an_assignment_only_pipelines_with_messages_in_the_slow_lane_follow(lane: SlowLane) -> None:
    lane.write("quick", 10)
    lane.write("hanging", 50)
    lane.write("done", 1)
    lane.finish(Progress(tuple(range(10, 60)), 61))
    lane.diversion.assigned(0)
    assert lane.follows("hanging")
    assert lane.follows("quick")  # not known yet
    await lane.known()
    assert lane.follows("hanging")
    assert not lane.follows("quick")
    assert not lane.follows("done")
    assert not lane.follows("never seen")


async def test_a_pipeline_goes_its_usual_way_again_while_another_has_a_backlog(lane: SlowLane) -> None:
    lane.diversion.assigned(0)
    await lane.known()
    assert not lane.follows("quick")
    lane.diversion.divert("hanging", Position(0, 1))
    lane.diversion.divert("quick", Position(0, 2))
    assert lane.follows("quick")
    lane.write("hanging", 2000)
    lane.write("quick", 2)
    await asyncio.sleep(1.5)
    assert lane.follows("quick")  # what was diverted may not have been written yet
    lane.committed = 3
    await asyncio.sleep(1.5)
    assert lane.follows("quick")
    lane.finish(Progress((0, 1, 2, 2001), 2002))
    await asyncio.sleep(1.5)
    assert lane.follows("quick")  # one of its two messages is open
    lane.finish(Progress((0, 1, 2), 2002))

    async def quick_is_free() -> bool:
        return not lane.follows("quick")

    await wait_until_async(quick_is_free)
    assert lane.follows("hanging")
    lane.finish(Progress((), 2002))

    async def hanging_is_free() -> bool:
        return not lane.follows("hanging")

    await wait_until_async(hanging_is_free)


async def test_a_large_backlog_is_read_in_the_background(lane: SlowLane) -> None:
    lane.write("hanging", 50_000, b"x" * 1000)
    began = time.monotonic()
    lane.diversion.assigned(0)
    await lane.known()
    print(f"A backlog of 50,000 messages of 1 KB was read in {time.monotonic() - began:.2f} s.")

    async def quick_is_free() -> bool:
        return not lane.follows("quick")

    await wait_until_async(quick_is_free)  # reading may take longer than messages wait for it
    assert lane.follows("hanging")


class LateConfig:
    """A manager that has no configuration for the first message, and none of its connectors for anybody."""

    def __init__(self) -> None:
        step = {"type": "deduplicate", "paths": ["n"]}
        config = PipelineConfig.model_validate({"transforms": [step], "index": [{"name": "n", "path": "n"}]})
        self.snapshot = PipelineSnapshot(
            id=uuid.uuid4(), workspace_id=uuid.uuid4(), version=1, accepting=True, config=config
        )
        self._asked = 0

    async def version(self, _pipeline: str, _version: int) -> PipelineSnapshot:
        self._asked += 1
        if self._asked == 1:
            raise ConfigUnavailableError("The manager did not answer.")
        return self.snapshot

    async def runtime(self, _pipeline: str, _version: int) -> Any:
        await asyncio.Event().wait()

    def count(self, *_: object) -> None: ...

    def error(self, *_: object, **__: object) -> None: ...


async def test_no_message_is_diverted_behind_later_ones(
    kafka: Server, redis_server: Server, pipeline_topics: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backend.manager_api.waiting._RETRY_SECONDS", 0.5)
    late = LateConfig()
    services: Any = LaneServices(late, late, Settings(), 1, lambda _: 0)  # type: ignore[arg-type]
    handler = TransformerHandler(services)
    slip = (routing.ADAPTED,)
    pipeline = str(late.snapshot.id)
    tasks = [
        asyncio.create_task(
            handler.handle(
                Message(names.new_message_id(), pipeline, 1, b"k", b'{"n": 1}', "text/plain", names.utc_now(), slip),
                Position(0, offset),
            )
        )
        for offset in range(150)
    ]

    async def diverted() -> bool:
        return sum(task.done() for task in tasks) == 50

    await wait_until_async(diverted)
    assert [record.topic for task in tasks[100:] for record in task.result()] == [routing.TRANSFORMER_SLOW] * 50
    for task in tasks[:100]:
        task.cancel()
    await handler.close()


def test_a_reader_is_closed_once_nothing_is_being_read() -> None:
    """Closing it meanwhile ended the whole process, at times."""
    reader = BacklogReader(KafkaSettings(bootstrap_servers="127.0.0.1:1"), "slow", "group")
    reads = threading.Event()
    outcomes: list[int] = []

    class Backlogs(dict[int, Backlog]):
        def __iter__(self) -> Any:
            reads.set()
            return super().__iter__()

    def read() -> None:
        try:
            reader.read(Backlogs({0: Backlog()}))
        except KafkaException as error:
            outcomes.append(error.args[0].code())

    reading = threading.Thread(target=read)
    reading.start()
    assert reads.wait(LIMIT_SECONDS)
    reader.close()
    reading.join()
    assert outcomes == [KafkaError._TIMED_OUT]  # and not that it was closed: no Kafka answers there
