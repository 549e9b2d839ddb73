"""Adapting for pipelines with transforms: applies the steps of the version a message was
accepted under and moves it on, exactly once from Kafka to Kafka."""

import asyncio
import logging
from dataclasses import replace

from backend.delivery.results import Record, dead_letter, resolved
from backend.domain import routing
from backend.domain.message import Message, child_message_id
from backend.domain.transforms.base import TransformError
from backend.domain.transforms.chain import Chain, compile_chain
from backend.manager_api.client import ConfigUnavailableError, UnknownPipelineError
from backend.telemetry import events
from spark_jobs.streaming.lane import Lane, LaneServices

STAGE = "adapting_transformer"

log = logging.getLogger(__name__)

_CONFIG_RETRY_SECONDS = 2.0


class TransformerHandler:
    """Compiles each pipeline version once and runs its steps on the event loop."""

    def __init__(self, services: LaneServices) -> None:
        self._config = services.config
        self._recorder = services.recorder
        self._chains: dict[tuple[str, int], Chain] = {}

    async def handle(self, message: Message, position: str) -> list[Record]:
        message, redelivery = message.split_redelivery()
        records = await self._transform(message)
        failed_again = any(record.topic == routing.DEAD_LETTER for record in records)
        if redelivery is None or failed_again:
            return records
        return [*records, resolved(message, redelivery.dead_letter)]

    async def _transform(self, message: Message) -> list[Record]:
        try:
            chain = self._chains.get((message.pipeline_id, message.version)) or await self._compile(message)
            results = chain(message.body)
        except UnknownPipelineError as error:
            return [self._dead(message, "unknown_pipeline", error)]
        except TransformError as error:
            return [self._dead(message, "transform_failed", error)]
        self._recorder.count(message.pipeline_id, events.TRANSFORMED if results else events.DROPPED)
        topic, moved = message.advanced()
        ids = [message.id] if len(results) == 1 else [child_message_id(message.id, n) for n in range(len(results))]
        return [
            Record.of(topic, replace(moved, id=id, body=result.body, content_type=result.content_type))
            for id, result in zip(ids, results, strict=True)
        ]

    def relieve(self) -> None:
        """Nothing is held that could be set aside."""

    async def close(self) -> None:
        """Nothing is held open."""

    async def _compile(self, message: Message) -> Chain:
        """Waits, however long, while the configuration cannot be had."""
        while True:
            try:
                snapshot = await self._config.version(message.pipeline_id, message.version)
                break
            except ConfigUnavailableError as error:
                log.warning("Waiting for the configuration of pipeline %s: %s", message.pipeline_id, error)
                await asyncio.sleep(_CONFIG_RETRY_SECONDS)
        chain = self._chains[message.pipeline_id, message.version] = compile_chain(snapshot.config.transforms)
        return chain

    def _dead(self, message: Message, reason: str, error: Exception) -> Record:
        self._recorder.count(message.pipeline_id, events.ADAPTING_DEAD)
        self._recorder.error(
            message.pipeline_id, stage="adapting", reason=reason, message=str(error), message_id=message.id
        )
        return dead_letter(message, stage=STAGE, reason=reason, error=str(error))


LANE = Lane(stage=STAGE, topic=routing.TRANSFORMER, handler=TransformerHandler, commit_seconds=0.0)
