"""Delivers adapted messages to their outputs through the delivery engine."""

from backend.delivery.engine import DeliveryEngine
from backend.domain.message import Message
from backend.domain.records import Record
from backend.domain.stages import SYNDICATING
from backend.resilience.gate import Gate
from spark_jobs.streaming.lane import Handler, Lane, LaneServices, Position


class SyndicatingHandler(Handler):
    """Passes each message to the engine; undeliverable messages become dead letters."""

    def __init__(self, services: LaneServices) -> None:
        environment = services.environment
        gate = Gate(environment.redis_url, share=1 / services.slots)
        self._engine = DeliveryEngine(services.config, services.recorder, gate, environment.breaker)

    async def handle(self, message: Message, position: Position) -> list[Record]:
        return await self._engine.deliver(message, str(position))

    def relieve(self) -> None:
        self._engine.relieve()

    def flush(self) -> None:
        self._engine.flush()

    async def close(self) -> None:
        await self._engine.close()


LANE = Lane(SYNDICATING, SyndicatingHandler, commit_seconds=0.2)
