"""Filtering: matches each indexed message against the filters of the workspace's other pipelines, and forwards it
along its own routing slip."""

from collections import defaultdict
from uuid import UUID

from msgspec.structs import replace

from backend.domain import json, routing
from backend.domain.filters.conditions import Index
from backend.domain.filters.fields import index_of
from backend.domain.filters.index import PredicateIndex
from backend.domain.inputs.filter import FilterInput
from backend.domain.message import FILTERED, INDEX, Message, filtered_message_id
from backend.domain.pipeline import PipelineSnapshot
from backend.domain.reasons import Reason
from backend.domain.records import Record, dead_letter, resolved
from backend.domain.stages import FILTERING
from backend.manager_api.client import ConfigClient, UnknownPipelineError
from backend.manager_api.waiting import WaitingConfig
from backend.telemetry import events
from spark_jobs.streaming.lane import Handler, Lane, LaneServices, Position


class Filters:
    """The published filters, by workspace; they follow the changes that the manager streams."""

    def __init__(self, config: ConfigClient) -> None:
        self._config = config
        self._revision = -1
        self._by_workspace: dict[UUID, dict[str, int]] = {}
        self._indexes: dict[UUID, PredicateIndex[str]] = {}

    def of(self, workspace: UUID) -> PredicateIndex[str]:
        """Its keys are pipeline ids. It is built on first use after a change of the workspace's filters."""
        if self._revision != self._config.revision:
            self._regroup()
        index = self._indexes.get(workspace)
        if index is None:
            snapshots = ((key, self._config.pipeline(key)) for key in self._by_workspace.get(workspace, ()))
            index = self._indexes[workspace] = PredicateIndex(
                (key, snapshot.config.input.condition)
                for key, snapshot in snapshots
                if snapshot is not None and isinstance(snapshot.config.input, FilterInput)
            )
        return index

    def _regroup(self) -> None:
        self._revision = self._config.revision
        grouped: defaultdict[UUID, dict[str, int]] = defaultdict(dict)
        for key, snapshot in self._config.pipelines():
            if snapshot.accepting and isinstance(snapshot.config.input, FilterInput):
                grouped[snapshot.workspace_id][key] = snapshot.version
        for workspace in list(self._indexes):
            if grouped.get(workspace) != self._by_workspace.get(workspace):
                del self._indexes[workspace]
        self._by_workspace = dict(grouped)


class FilteringHandler(Handler):
    """Creates a separate message for each pipeline whose filter matches."""

    def __init__(self, services: LaneServices) -> None:
        self._config = services.config
        self._recorder = services.recorder
        self._waiting = WaitingConfig(services.config, services.recorder, FILTERING.name)
        self._filters = Filters(services.config)

    async def handle(self, message: Message, position: Position) -> list[Record]:
        message, redelivery = message.split_redelivery()
        try:
            workspace = (await self._waiting.version(message)).workspace_id
            records = self._filter(message, workspace)
        except UnknownPipelineError as error:
            return [dead_letter(message, stage=FILTERING.name, reason=Reason.UNKNOWN_PIPELINE, error=str(error))]
        except json.InvalidJsonError as error:
            text = f"The header {INDEX} is not a JSON object: {error}"
            return [dead_letter(message, stage=FILTERING.name, reason=Reason.MALFORMED, error=text)]
        return records if redelivery is None else [*records, resolved(message, redelivery.dead_letter)]

    def _filter(self, message: Message, workspace: UUID) -> list[Record]:
        extra = dict(message.extra)
        index: Index = _object(extra.pop(INDEX, "{}"))
        passed = [*filter(None, extra.pop(FILTERED, "").split(",")), message.pipeline_id]
        self._recorder.count(message.pipeline_id, events.OFFERED)
        records = []
        for key in self._filters.of(workspace).matches(index):
            subscriber = self._config.pipeline(key)
            if subscriber is None or key in passed:
                continue
            self._recorder.count(key, events.MATCHED)
            records.append(_record_for(subscriber, replace(message, extra=extra), passed))
        if message.slip:
            records.append(Record.of(*replace(message, extra=extra).advanced()))
        return records


def _object(text: str) -> Index:
    document = json.loads(text)
    if not isinstance(document, dict):
        raise json.InvalidJsonError("it has another type.")
    return document


def _record_for(subscriber: PipelineSnapshot, message: Message, passed: list[str]) -> Record:
    topic, slip = routing.route(subscriber.config, str(subscriber.id))
    extra = message.extra | {FILTERED: ",".join(passed)}
    if topic == routing.FILTER:
        extra[INDEX] = index_of(subscriber.config.index, _document(message.body)).decode()
    key = str(subscriber.id)
    return Record.of(
        topic,
        replace(
            message,
            id=filtered_message_id(message.id, key),
            pipeline_id=key,
            version=subscriber.version,
            slip=slip,
            extra=extra,
        ),
    )


def _document(body: bytes) -> object:
    try:
        return json.loads(body)
    except json.InvalidJsonError:
        return None


LANE = Lane(FILTERING, FilteringHandler, commit_seconds=0.0)
