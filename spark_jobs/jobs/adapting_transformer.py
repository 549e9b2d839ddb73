"""Adapting for pipelines with transforms: applies the steps of the version under which a message was accepted and
forwards the results, exactly once from Kafka to Kafka.

Steps may wait, mostly for external APIs. Each pipeline has a bulkhead in this lane for such messages; those beyond it
go through the slow lane (adapting_slow).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from backend.api_calls.services import ApiCalls
from backend.domain import routing
from backend.domain.filters.fields import IndexedField, index_of
from backend.domain.idle_cache import IdleCache
from backend.domain.message import INDEX, Message, Redelivery, child_message_id
from backend.domain.pipeline import PipelineSnapshot
from backend.domain.reasons import Reason
from backend.domain.records import Record, dead_letter, resolved
from backend.domain.stages import ADAPTING_SLOW, ADAPTING_TRANSFORMER
from backend.domain.stream_processing import CONTENT_TYPE
from backend.domain.transforms.base import TransformError
from backend.domain.transforms.chain import Chain, Result
from backend.manager_api.client import UnknownPipelineError
from backend.manager_api.waiting import WaitingConfig
from backend.resilience.bulkhead import Bulkhead
from backend.resilience.gate import Gate
from backend.telemetry import events
from spark_jobs.streaming.diversion import Diversion
from spark_jobs.streaming.lane import Handler, Lane, LaneServices, Position

_MESSAGES = 100
_BYTES = 4 * 1024 * 1024
_VERSION_IDLE_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a pipeline, compiled for this stage."""

    chain: Chain
    index: list[IndexedField]
    write: Callable[[Any], bytes] | None = None
    """Encodes a document as Avro, for stream processing."""


def _compiled(snapshot: PipelineSnapshot) -> Version:
    config, write = snapshot.config, None
    if config.stream_processing is not None:
        assert snapshot.schema_id is not None  # the schema is registered before the version is published
        write = config.stream_processing.compile(snapshot.schema_id)
    return Version(Chain(config.transforms), config.index, write)


class Transformer:
    """Compiles each pipeline version once and runs its steps."""

    def __init__(self, services: LaneServices) -> None:
        environment = services.environment
        self._config = WaitingConfig(services.config, services.recorder, "adapting")
        self._recorder = services.recorder
        self._versions: IdleCache[tuple[str, int], Version] = IdleCache(_VERSION_IDLE_SECONDS)
        self._api_calls = ApiCalls(
            environment.redis_url,
            gate=Gate(environment.redis_url, share=1 / services.slots),
            breaker=environment.breaker,
            recorder=services.recorder,
        )

    def known(self, message: Message) -> Version | None:
        """The message's version, once it is compiled."""
        return self._versions.get((message.pipeline_id, message.version))

    async def version(self, message: Message) -> Version:
        """Raises UnknownPipelineError."""
        version = self.known(message)
        if version is None:
            snapshot = await self._config.version(message)
            # Another message may have compiled it while this one waited for the configuration.
            version = self.known(message)
            if version is None:
                version = _compiled(snapshot)
                self._versions[message.pipeline_id, message.version] = version
        return version

    def run(self, message: Message, version: Version) -> list[Record]:
        """Runs a version none of whose steps waits."""
        message, redelivery = message.split_redelivery()
        try:
            records = self._moved(message, version, version.chain.run(message.body))
        except TransformError as error:
            records = [self.dead(message, error)]
        return self._with_outcome(records, message, redelivery)

    async def run_waiting(self, message: Message, version: Version) -> list[Record]:
        message, redelivery = message.split_redelivery()
        try:
            runtime = await self._config.runtime(message)
            resources = self._api_calls.resources(message.pipeline_id, message.id, runtime.connectors)
            records = self._moved(message, version, await version.chain.run_waiting(message.body, resources))
        except UnknownPipelineError as error:
            records = [self.unknown(message, error)]
        except TransformError as error:
            records = [self.dead(message, error)]
        return self._with_outcome(records, message, redelivery)

    def dead(self, message: Message, error: TransformError) -> Record:
        """The dead letter of a message that a step rejected or failed on."""
        return self._dead(message, error.reason, str(error), due=error.due, retryable=error.retryable)

    def unknown(self, message: Message, error: UnknownPipelineError) -> Record:
        plain, _ = message.split_redelivery()
        return self._dead(plain, Reason.UNKNOWN_PIPELINE, str(error))

    def saturated(self, message: Message, due: float) -> Record:
        plain, _ = message.split_redelivery()
        text = (
            "The pipeline's slots for external calls stayed occupied while other pipelines waited; the message is "
            "redelivered automatically."
        )
        return self._dead(plain, Reason.ADAPTING_SATURATED, text, due=due)

    async def close(self) -> None:
        await self._api_calls.close()

    def _moved(self, message: Message, version: Version, results: list[Result]) -> list[Record]:
        self._recorder.count(message.pipeline_id, events.TRANSFORMED if results else events.DROPPED)
        topic, moved = message.advanced()
        if version.write is not None:
            written = [replace(r, body=version.write(r.document), content_type=CONTENT_TYPE) for r in results]
            return [Record.of(topic, made) for made, _ in _messages(moved, written)]
        if topic == routing.FILTER:
            return [Record.of(topic, _indexed(made, version.index, r)) for made, r in _messages(moved, results)]
        return [Record.of(topic, made) for made, _ in _messages(moved, results)]

    @staticmethod
    def _with_outcome(records: list[Record], message: Message, redelivery: Redelivery | None) -> list[Record]:
        """A redelivered dead letter is resolved unless it has become a dead letter again."""
        if redelivery is None or any(record.topic == routing.DEAD_LETTER for record in records):
            return records
        return [*records, resolved(message, redelivery.dead_letter)]

    def _dead(
        self, message: Message, reason: str, error: str, *, due: float | None = None, retryable: bool = False
    ) -> Record:
        self._recorder.count(message.pipeline_id, events.ADAPTING_DEAD)
        self._recorder.error(message.pipeline_id, stage="adapting", reason=reason, message=error, message_id=message.id)
        return dead_letter(
            message, stage=ADAPTING_TRANSFORMER.name, reason=reason, error=error, due=due, retryable=retryable
        )


class Bulkheads:
    """A bulkhead for each pipeline that has messages in the lane."""

    def __init__(self, messages: int, bytes: int) -> None:
        self._messages = messages
        self._bytes = bytes
        self._by_pipeline: dict[str, Bulkhead] = {}

    def of(self, pipeline_id: str) -> Bulkhead:
        bulkhead = self._by_pipeline.get(pipeline_id)
        if bulkhead is None:
            bulkhead = self._by_pipeline[pipeline_id] = Bulkhead(self._messages, self._bytes)
        return bulkhead

    def forget_empty(self, pipeline_id: str) -> None:
        bulkhead = self._by_pipeline.get(pipeline_id)
        if bulkhead is not None and bulkhead.is_empty:
            del self._by_pipeline[pipeline_id]

    def used(self) -> list[Bulkhead]:
        return [bulkhead for bulkhead in self._by_pipeline.values() if bulkhead.messages]


class TransformerHandler(Handler):
    """Handles messages whose steps never wait immediately; others enter their pipeline's bulkhead or, when that is
    full, the slow lane."""

    def __init__(self, services: LaneServices) -> None:
        self._transformer = Transformer(services)
        self._recorder = services.recorder
        self._bulkheads = Bulkheads(_MESSAGES, _BYTES)
        self._diversion = Diversion(
            services.environment.kafka_bootstrap_servers,
            topic=routing.TRANSFORMER_SLOW,
            group=ADAPTING_SLOW.group,
            committed=services.committed,
        )

    def handle_now(self, message: Message, position: Position) -> list[Record] | None:
        version = self._transformer.known(message)
        if version is None or version.chain.waits or self._diversion.follows(message.pipeline_id, position):
            return None
        return self._transformer.run(message, version)

    async def handle(self, message: Message, position: Position) -> list[Record]:
        try:
            version = await self._transformer.version(message)
        except UnknownPipelineError as error:
            return [self._transformer.unknown(message, error)]
        if version.chain.waits:
            await self._diversion.known(position)
            diverted = self._diversion.follows(message.pipeline_id, position, waits=True)
            bulkhead = self._bulkheads.of(message.pipeline_id)
            if not diverted and bulkhead.enter_now(len(message.body)):
                try:
                    return await self._transformer.run_waiting(message, version)
                finally:
                    bulkhead.leave(len(message.body))
                    self._bulkheads.forget_empty(message.pipeline_id)
        elif not self._diversion.follows(message.pipeline_id, position):
            return self._transformer.run(message, version)
        self._diversion.divert(message.pipeline_id, position)
        self._recorder.count(message.pipeline_id, events.DIVERTED)
        return [Record.of(routing.TRANSFORMER_SLOW, message)]

    def assigned(self, partition: int) -> None:
        self._diversion.assigned(partition)

    async def close(self) -> None:
        await self._diversion.close()
        await self._transformer.close()


def _messages(message: Message, results: list[Result]) -> list[tuple[Message, Result]]:
    """A message for each result: the same message for a single result, child messages for several."""
    ids = [message.id] if len(results) == 1 else [child_message_id(message.id, n) for n in range(len(results))]
    return [
        (replace(message, id=id, body=result.body, content_type=result.content_type), result)
        for id, result in zip(ids, results, strict=True)
    ]


def _indexed(message: Message, fields: list[IndexedField], result: Result) -> Message:
    return replace(message, extra=message.extra | {INDEX: index_of(fields, result.document).decode()})


LANE = Lane(ADAPTING_TRANSFORMER, TransformerHandler, commit_seconds=0.0)
