"""Delivers adapted messages to their outputs through the delivery engine."""

from backend.delivery.engine import DeliveryEngine
from backend.delivery.results import Record
from backend.domain import routing
from backend.domain.message import Message
from backend.manager_api.client import ConfigClient
from backend.telemetry.recorder import Recorder
from spark_jobs.streaming.lane import Lane

STAGE = "syndicating"


class SyndicatingHandler:
    """Hands each message to the engine; what could not be delivered comes back as dead letters."""

    def __init__(self, config: ConfigClient, recorder: Recorder) -> None:
        self._engine = DeliveryEngine(config, recorder)

    async def handle(self, message: Message) -> list[Record]:
        return await self._engine.deliver(message)

    async def close(self) -> None:
        await self._engine.close()


LANE = Lane(stage=STAGE, topic=routing.ADAPTED, handler=SyndicatingHandler, commit_seconds=0.2)
