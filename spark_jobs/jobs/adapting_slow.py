"""The slow lane of adapting: what waits for external APIs above its pipeline's share. A slow pipeline fills only
its own places here; while others need room, what is above is set aside and tried again later."""

import time

from backend.domain import routing
from backend.domain.message import Message
from backend.domain.records import Record
from backend.manager_api.client import UnknownPipelineError
from backend.resilience.share import Share
from spark_jobs.jobs.adapting_transformer import SLOW_STAGE, Transformer
from spark_jobs.streaming.lane import Handler, Lane, LaneServices, Position

_SHARE = 500
_SHARE_BYTES = 16 * 1024 * 1024
_SATURATED_SECONDS = 15.0


class SlowHandler(Handler):
    """Runs the steps as the transformer does, each pipeline within its share."""

    def __init__(self, services: LaneServices) -> None:
        self._transformer = Transformer(services)
        self._shares: dict[str, Share] = {}

    async def handle(self, message: Message, position: Position) -> list[Record]:
        share = self._shares.setdefault(message.pipeline_id, Share(_SHARE, _SHARE_BYTES))
        if not await share.enter(len(message.body)):
            return [self._transformer.saturated(message, time.time() + _SATURATED_SECONDS)]
        try:
            version = await self._transformer.version(message)
            return await self._transformer.run_waiting(message, version)
        except UnknownPipelineError as error:
            return [self._transformer.unknown(message, error)]
        finally:
            share.leave(len(message.body))

    def relieve(self) -> None:
        """A single pipeline may fill the window, since nobody else waits then."""
        used = [share for share in self._shares.values() if share.messages]
        if len(used) > 1:
            for share in used:
                share.dismiss_line()

    async def close(self) -> None:
        await self._transformer.close()


LANE = Lane(stage=SLOW_STAGE, topic=routing.TRANSFORMER_SLOW, handler=SlowHandler, commit_seconds=0.0)
