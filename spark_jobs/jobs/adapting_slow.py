"""The slow lane of adapting: messages that wait for external APIs and exceed their pipeline's share of the first lane.
While others need room, those that queue for a slow API become dead letters, which are redelivered automatically."""

import time
from collections import Counter

from backend.delivery.lateness import Lateness
from backend.delivery.shares import Party, make_room
from backend.domain.message import Message
from backend.domain.records import Record
from backend.domain.stages import ADAPTING_SLOW
from backend.manager_api.client import UnknownPipelineError
from backend.manager_api.waiting import EvictedError
from spark_jobs.jobs.adapting_transformer import PipelineShares, Transformer
from spark_jobs.streaming.backlog import BacklogReader, OthersBehind
from spark_jobs.streaming.lane import Handler, Lane, LaneServices, Position

_MESSAGES = 500
_BYTES = 16 * 1024 * 1024
_SATURATED_SECONDS = 15.0


class SlowHandler(Handler):
    """Runs the steps as the transformer does, each pipeline within its share of the window."""

    def __init__(self, services: LaneServices) -> None:
        self._transformer = Transformer(services)
        self._shares = PipelineShares(_MESSAGES, _BYTES, LANE)
        self._lateness = Lateness()
        self._partitions: Counter[int] = Counter()
        """The number of messages in flight."""
        assert LANE.stage.topic is not None
        self._others = OthersBehind(BacklogReader(services.environment.kafka, LANE.stage.topic, LANE.stage.group))

    async def handle(self, message: Message, position: Position) -> list[Record]:
        try:
            version = await self._transformer.version(message)
        except (UnknownPipelineError, EvictedError) as error:
            return [self._transformer.without_configuration(message, error)]
        share, size = self._shares.of(message.pipeline_id), len(message.body)
        room = share.arrive(size)
        self._partitions[position.partition] += 1
        try:
            if room is not None and not await room:
                return [self._transformer.saturated(message, time.time() + _SATURATED_SECONDS)]
            with self._shares.admitted(share, size):
                return await self._transformer.run_waiting(message, version)
        finally:
            share.leave(size)
            self._partitions[position.partition] -= 1

    def make_room(self) -> None:
        parties: list[Party] = [*self._shares.all(), *self._transformer.waiting()]
        make_room(self._shares.window, parties, is_alone=self._is_alone(), is_late=self._lateness.is_late)

    def _is_alone(self) -> bool:
        """Whether one pipeline has had messages here of late, and no other waits in the topic. Few pipelines come here,
        so one that does may not have been seen before, and behind the backlog of another it would not be."""
        pipelines = self._shares.pipelines()
        partitions = [partition for partition, count in self._partitions.items() if count]
        return len(pipelines) == 1 and not self._others.wait_behind(pipelines[0], partitions)

    async def close(self) -> None:
        self._lateness.close()
        await self._others.close()
        await self._transformer.close()


LANE = Lane(ADAPTING_SLOW, SlowHandler, commit_seconds=0.0)
