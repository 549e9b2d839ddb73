"""Writes each message to the topic of the store, in capitals."""

from msgspec.structs import replace

from backend.domain.message import Message
from backend.domain.records import Record
from backend.domain.stages import stage_named
from spark_jobs.streaming.lane import Handler, Lane, LaneServices, Position

STAGE = stage_named("toy_shout")


class ShoutHandler(Handler):
    def __init__(self, services: LaneServices) -> None:
        """Needs none of them."""

    async def handle(self, message: Message, position: Position) -> list[Record]:
        return [Record.of(STAGE.next[0], replace(message, body=message.body.upper()))]


LANE = Lane(STAGE, ShoutHandler, commit_seconds=0.2)
