"""Filtering: matches each indexed message against the filters of the workspace's other pipelines, and forwards it
along its own routing slip."""

from uuid import UUID

from msgspec.structs import replace

from backend.delivery.shares import Window, make_room
from backend.domain import json, limits, routing
from backend.domain.filters.conditions import Index
from backend.domain.filters.index import PredicateIndex
from backend.domain.inputs.filter import FilterInput
from backend.domain.message import FILTERED, INDEX, Message
from backend.domain.offering import record_for
from backend.domain.reasons import Reason
from backend.domain.records import Record, dead_letter, resolved
from backend.domain.stages import FILTERING
from backend.manager_api.client import ConfigClient, UnknownPipelineError
from backend.manager_api.waiting import EvictedError, WaitingConfig
from backend.telemetry import events
from spark_jobs.streaming.lane import Handler, Lane, LaneServices, Position


class Filters:
    """The published filters, by workspace; they follow the changes that the manager streams."""

    def __init__(self, config: ConfigClient) -> None:
        self._config = config
        self._indexes: dict[UUID, tuple[int, PredicateIndex[str]]] = {}

    def of(self, workspace: UUID) -> PredicateIndex[str] | None:
        """Its keys are pipeline ids; None when the workspace has no filters. It is built on first use after a change of
        the workspace's filters."""
        filters = self._config.filters(workspace)
        if filters is None:
            self._indexes.pop(workspace, None)
            return None
        revision, index = self._indexes.get(workspace, (None, None))
        if index is None or revision != filters.revision:
            revision = filters.revision
            snapshots = ((key, self._config.pipeline(key)) for key in list(filters.pipeline_ids))
            index = PredicateIndex(
                (key, snapshot.config.input.condition)
                for key, snapshot in snapshots
                if snapshot is not None and isinstance(snapshot.config.input, FilterInput)
            )
            self._indexes[workspace] = revision, index
        return index


class FilteringHandler(Handler):
    """Creates a separate message for each pipeline whose filter matches."""

    def __init__(self, services: LaneServices) -> None:
        self._config = services.config
        self._recorder = services.recorder
        self._waiting = WaitingConfig(services.config, services.recorder, FILTERING.name)
        self._filters = Filters(services.config)
        self._window = Window(LANE.window, LANE.window_bytes)

    async def handle(self, message: Message, position: Position) -> list[Record]:
        message, redelivery = message.split_redelivery()
        try:
            workspace = (await self._waiting.version(message)).workspace_id
            records = self._filter(message, workspace)
        except (UnknownPipelineError, EvictedError, json.InvalidJsonError, limits.TooLargeError) as error:
            for event in events.dead_letter(FILTERING.name, redelivery):
                self._recorder.count(message.pipeline_id, event)
            return [_dead(message, error)]
        if redelivery is None:
            return records
        self._recorder.count(message.pipeline_id, events.handled_again(FILTERING.name, redelivery))
        return [*records, resolved(message, redelivery.dead_letter)]

    def make_room(self) -> None:
        # Only what waits for its configuration stays in the window for long.
        make_room(self._window, self._waiting.queues(), is_alone=False, is_late=False)

    def _filter(self, message: Message, workspace: UUID) -> list[Record]:
        extra = dict(message.extra)
        index: Index = _object(extra.pop(INDEX, "{}"))
        passed = [*filter(None, extra.pop(FILTERED, "").split(",")), message.pipeline_id]
        self._recorder.count(message.pipeline_id, events.OFFERED)
        filters = self._filters.of(workspace)
        matching = [
            subscriber
            for key in (filters.matches(index) if filters is not None else ())
            if key not in passed and (subscriber := self._config.pipeline(key)) is not None
        ]
        message = replace(message, extra=extra)
        records, made = [], limits.FanOut(limits.TRANSACTION_BYTES)
        for subscriber in matching:
            records.append(record_for(subscriber, message, passed))
            made.add(records[-1].size)
        for subscriber, record in zip(matching, records, strict=True):
            self._recorder.count(str(subscriber.id), events.MATCHED)
            if record.topic == routing.DEAD_LETTER:
                for event in events.dead_letter(FILTERING.name, None):
                    self._recorder.count(str(subscriber.id), event)
        if message.slip:
            records.append(Record.of(*message.advanced()))
        return records


def _dead(
    message: Message, error: UnknownPipelineError | EvictedError | json.InvalidJsonError | limits.TooLargeError
) -> Record:
    match error:
        case EvictedError():
            return error.dead_letter(message, stage=FILTERING.name)
        case json.InvalidJsonError():
            reason, text = Reason.MALFORMED, f"The header {INDEX} is not a JSON object: {error}"
        case limits.TooLargeError():
            reason, text = Reason.TOO_LARGE, str(error)
        case _:
            reason, text = Reason.UNKNOWN_PIPELINE, str(error)
    return dead_letter(message, stage=FILTERING.name, reason=reason, error=text)


def _object(text: str) -> Index:
    document = json.loads(text)
    if not isinstance(document, dict):
        raise json.InvalidJsonError("it has another type.")
    return document


LANE = Lane(FILTERING, FilteringHandler, commit_seconds=0.0)
