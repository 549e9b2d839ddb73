"""Adapting for pipelines with transforms: applies the steps of the version a message was
accepted under and moves it on, exactly once from Kafka to Kafka."""

from dataclasses import dataclass, replace

from backend.delivery.results import Record, dead_letter, resolved
from backend.domain import routing
from backend.domain.filters.fields import IndexedField, index_of
from backend.domain.message import INDEX, Message, child_message_id
from backend.domain.transforms.base import TransformError
from backend.domain.transforms.chain import Chain, Result, compile_chain
from backend.manager_api.client import UnknownPipelineError
from backend.telemetry import events
from spark_jobs.streaming.configuration import snapshot_of
from spark_jobs.streaming.lane import Lane, LaneServices

STAGE = "adapting_transformer"


@dataclass(frozen=True)
class _Version:
    """What one version of a pipeline does here."""

    chain: Chain
    index: list[IndexedField]


class TransformerHandler:
    """Compiles each pipeline version once and runs its steps on the event loop."""

    def __init__(self, services: LaneServices) -> None:
        self._config = services.config
        self._recorder = services.recorder
        self._versions: dict[tuple[str, int], _Version] = {}

    async def handle(self, message: Message, position: str) -> list[Record]:
        """For a version that is not compiled yet."""
        plain, _ = message.split_redelivery()
        try:
            config = (await snapshot_of(self._config, plain)).config
        except UnknownPipelineError as error:
            return [self._dead(plain, "unknown_pipeline", error)]
        key = (message.pipeline_id, message.version)
        # Of all that waited for the configuration, the first compiles.
        if key not in self._versions:
            self._versions[key] = _Version(compile_chain(config.transforms), config.index)
        return self._records(message, self._versions[key])

    def handle_now(self, message: Message, position: str) -> list[Record] | None:
        version = self._versions.get((message.pipeline_id, message.version))
        return None if version is None else self._records(message, version)

    def relieve(self) -> None:
        """Nothing is held that could be set aside."""

    async def close(self) -> None:
        """Nothing is held open."""

    def _records(self, message: Message, version: _Version) -> list[Record]:
        message, redelivery = message.split_redelivery()
        records = self._transform(message, version)
        failed_again = any(record.topic == routing.DEAD_LETTER for record in records)
        if redelivery is None or failed_again:
            return records
        return [*records, resolved(message, redelivery.dead_letter)]

    def _transform(self, message: Message, version: _Version) -> list[Record]:
        try:
            results = version.chain(message.body)
        except TransformError as error:
            return [self._dead(message, "transform_failed", error)]
        self._recorder.count(message.pipeline_id, events.TRANSFORMED if results else events.DROPPED)
        topic, moved = message.advanced()
        if topic == routing.FILTER:
            return [Record.of(topic, _indexed(made, version.index, r)) for made, r in _messages(moved, results)]
        return [Record.of(topic, made) for made, _ in _messages(moved, results)]

    def _dead(self, message: Message, reason: str, error: Exception) -> Record:
        self._recorder.count(message.pipeline_id, events.ADAPTING_DEAD)
        self._recorder.error(
            message.pipeline_id, stage="adapting", reason=reason, message=str(error), message_id=message.id
        )
        return dead_letter(message, stage=STAGE, reason=reason, error=str(error))


def _messages(message: Message, results: list[Result]) -> list[tuple[Message, Result]]:
    """A message for each result: the same one where it stays one, children where it becomes several."""
    ids = [message.id] if len(results) == 1 else [child_message_id(message.id, n) for n in range(len(results))]
    return [
        (replace(message, id=id, body=result.body, content_type=result.content_type), result)
        for id, result in zip(ids, results, strict=True)
    ]


def _indexed(message: Message, fields: list[IndexedField], result: Result) -> Message:
    return replace(message, extra=message.extra | {INDEX: index_of(fields, result.document).decode()})


LANE = Lane(stage=STAGE, topic=routing.TRANSFORMER, handler=TransformerHandler, commit_seconds=0.0)
