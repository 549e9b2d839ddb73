"""One lane task as a process of its own, so that a test can kill it:
``python -m tests.integration.data_plane.lane_process INPUT OUTPUT SLOT STOP_PORT``."""

import asyncio
import os
import random
import sys

from confluent_kafka import KafkaError, KafkaException
from msgspec.structs import replace

from backend.domain.message import Message
from backend.domain.records import Record
from backend.domain.stages import Form, Stage
from backend.settings import Settings
from spark_jobs.streaming import transaction
from spark_jobs.streaming.lane import Handler, Lane, LaneServices, Position
from spark_jobs.streaming.lane_task import run_slot


class Copying(Handler):
    """Copies each message after a random while, so that messages finish out of order; some take very long.

    A header asks for a copy of so many bytes, for several of them, or for another topic; for more time, or as much as
    until a file exists; for a defect; or for the commit thread to fail.
    """

    topic = ""

    def __init__(self, services: LaneServices) -> None:
        pass

    async def handle(self, message: Message, position: Position) -> list[Record]:
        if "commits-fail" in message.extra:
            transaction.TransactionalWriter.commit = _failing  # type: ignore[method-assign]
        if "defect" in message.extra:
            raise RuntimeError(message.extra["defect"])
        await asyncio.sleep(float(message.extra.get("seconds", 0)))
        while "until" in message.extra and not os.path.exists(message.extra["until"]):
            await asyncio.sleep(1)
        await asyncio.sleep(random.uniform(0, 0.2) if random.random() < 0.999 else 4)
        wanted = message.extra
        if wanted.keys() & {"bytes", "copies", "topic"}:
            body = os.urandom(int(wanted["bytes"])) if "bytes" in wanted else message.body
            copy = Record.of(wanted.get("topic", self.topic), replace(message, body=body))
            return [Record.of(self.topic, message), copy] * int(wanted.get("copies", 1))
        return [Record.of(self.topic, message)]


def _failing(*_: object) -> None:
    raise KafkaException(KafkaError(KafkaError._FATAL, "as the test wants it", True))


if __name__ == "__main__":
    # A test need not wait for as long as a real transaction may take.
    seconds = os.environ.get("TEST_TRANSACTION_SECONDS", transaction.TRANSACTION_SECONDS)
    transaction.TRANSACTION_SECONDS = float(seconds)
    topic, Copying.topic, slot, stop_port = sys.argv[1:]
    lane = Lane(Stage(f"test-{topic}", Form.LANE, priority=1, topic=topic), Copying, commit_seconds=0.0)
    run_slot(lane, Settings(), ("127.0.0.1", int(stop_port)), int(slot), slots=1)
