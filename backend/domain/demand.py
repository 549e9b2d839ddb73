"""What needs a stage, so that only those stages run that something needs."""

from collections.abc import Mapping
from enum import StrEnum
from uuid import UUID

from backend.domain import routing
from backend.domain.capabilities import Collect, Export, ReadBatch, Reading, ReadStream
from backend.domain.inputs.connector import ConnectorInput
from backend.domain.pipeline import PipelineConfig
from backend.domain.stages import STAGES, Stage
from backend.domain.transforms.base import WaitingTransform
from backend.domain.uses import known_capability


class Demand(StrEnum):
    """Why a stage runs or does not."""

    ALWAYS = "always"
    """It runs as long as its application."""
    PIPELINES = "pipelines"
    """Published pipelines need it."""
    FILES = "files"
    """Messages are staged whose files are not stored yet."""
    MESSAGES = "messages"
    """Its topic has messages that it has not handled."""
    UNKNOWN = "unknown"
    """The manager has not said yet what is needed."""
    RECENT = "recent"
    """Nothing needs it any more, since a few minutes ago."""
    NONE = "none"
    """Nothing needs it."""


class StageState(StrEnum):
    """What a stage does."""

    RUNNING = "running"
    RESTING = "resting"
    """Nothing needs it."""
    WAITING = "waiting"
    """There are too few task slots for it."""
    FAILING = "failing"
    """A part of it does not run, or makes no progress."""
    STOPPED = "stopped"
    """Its application does not run."""


def stages_of(config: PipelineConfig, types: Mapping[UUID, str]) -> list[Stage]:
    """The stages that messages of a pipeline pass, and the one that reads its input. ``types`` are those of the
    connectors that it uses; one that is unknown here may be anything."""
    entry, ahead = routing.route(config, "")
    topics = {entry, *ahead}
    if any(isinstance(step, WaitingTransform) for step in config.transforms):
        topics.add(routing.TRANSFORMER_SLOW)
    for output in config.outputs:
        capability = known_capability(output, types)
        if capability is None or issubclass(capability, Export):
            topics.add(routing.EXPORT)
        if capability is None or issubclass(capability, Collect):
            topics.add(routing.COLLECTION)
    reading = _readings(config, types)
    return [stage for stage in STAGES if stage.topic in topics or stage.reading in reading]


def _readings(config: PipelineConfig, types: Mapping[UUID, str]) -> set[Reading]:
    if not isinstance(config.input, ConnectorInput):
        return set()
    capability = known_capability(config.input, types)
    if capability is None:
        return set(Reading)
    assert issubclass(capability, ReadBatch | ReadStream)
    return {capability.reading}
