"""The slow lane of adapting: messages that wait for external APIs and exceed their pipeline's bulkhead in the first
lane. A slow pipeline fills only its own bulkhead here; while others need room, its messages that queue for it become
dead letters, which are redelivered automatically."""

import time

from backend.domain.message import Message
from backend.domain.records import Record
from backend.domain.stages import ADAPTING_SLOW
from backend.manager_api.client import UnknownPipelineError
from spark_jobs.jobs.adapting_transformer import Bulkheads, Transformer
from spark_jobs.streaming.lane import Handler, Lane, LaneServices, Position

_MESSAGES = 500
_BYTES = 16 * 1024 * 1024
_SATURATED_SECONDS = 15.0


class SlowHandler(Handler):
    """Runs the steps as the transformer does, each pipeline in a bulkhead of its own."""

    def __init__(self, services: LaneServices) -> None:
        self._transformer = Transformer(services)
        self._bulkheads = Bulkheads(_MESSAGES, _BYTES)

    async def handle(self, message: Message, position: Position) -> list[Record]:
        bulkhead = self._bulkheads.of(message.pipeline_id)
        if not await bulkhead.enter(len(message.body)):
            return [self._transformer.saturated(message, time.time() + _SATURATED_SECONDS)]
        try:
            version = await self._transformer.version(message)
            return await self._transformer.run_waiting(message, version)
        except UnknownPipelineError as error:
            return [self._transformer.unknown(message, error)]
        finally:
            bulkhead.leave(len(message.body))
            self._bulkheads.forget_empty(message.pipeline_id)

    def relieve(self) -> None:
        """A single pipeline may fill the window, since no other waits."""
        used = self._bulkheads.used()
        if len(used) > 1:
            for bulkhead in used:
                bulkhead.dismiss_line()

    async def close(self) -> None:
        await self._transformer.close()


LANE = Lane(ADAPTING_SLOW, SlowHandler, commit_seconds=0.0)
