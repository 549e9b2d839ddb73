"""Delivers adapted messages to their outputs through the delivery engine."""

from backend.delivery.engine import DeliveryEngine
from backend.delivery.shares import Window
from backend.domain.message import Message
from backend.domain.records import Record
from backend.domain.stages import SYNDICATING
from backend.resilience.gate import Gate
from spark_jobs.streaming.lane import Handler, Lane, LaneServices, Position


class SyndicatingHandler(Handler):
    """Passes each message to the engine; undeliverable messages become dead letters."""

    def __init__(self, services: LaneServices) -> None:
        environment = services.environment
        gate = Gate(environment.redis_url, rate_fraction=1 / services.slots)
        window = Window(LANE.window, LANE.window_bytes)
        self._engine = DeliveryEngine(services.config, services.recorder, gate, environment.breaker, window)

    async def handle(self, message: Message, position: Position) -> list[Record]:
        return await self._engine.deliver(message, str(position), position.commit)

    def make_room(self) -> None:
        self._engine.make_room()

    def relieve(self) -> None:
        self._engine.flush()

    def flush(self) -> None:
        self._engine.flush()

    async def close(self) -> None:
        await self._engine.close()


# A bound would include the stacks of all threads, 8 MiB each, and the client of each Kafka output has several.
LANE = Lane(SYNDICATING, SyndicatingHandler, commit_seconds=0.2, memory_is_bounded=False)
