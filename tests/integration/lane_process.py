"""One lane task as a process of its own, so that a test can kill it:
``python -m tests.integration.lane_process INPUT OUTPUT SLOT STOP_PORT``."""

import asyncio
import random
import sys

from backend.domain.message import Message
from backend.domain.records import Record
from backend.domain.stages import Form, Stage
from backend.settings import Settings
from spark_jobs.streaming.lane import Handler, Lane, LaneServices, Position, run_slot


class Copying(Handler):
    """Copies each message after a random while, so that messages finish out of order; some take very long."""

    topic = ""

    def __init__(self, services: LaneServices) -> None:
        pass

    async def handle(self, message: Message, position: Position) -> list[Record]:
        await asyncio.sleep(random.uniform(0, 0.2) if random.random() < 0.999 else 4)
        return [Record.of(self.topic, message)]


if __name__ == "__main__":
    topic, Copying.topic, slot, stop_port = sys.argv[1:]
    lane = Lane(Stage(f"test-{topic}", Form.LANE, topic), Copying, commit_seconds=0.0)
    run_slot(lane, Settings(), ("127.0.0.1", int(stop_port)), int(slot), slots=1)
