"""Which stages run, with the task slots that Spark has."""

from collections.abc import Iterable
from dataclasses import dataclass

from backend.domain.stages import (
    ADAPTING,
    ADAPTING_SLOW,
    ADAPTING_TRANSFORMER,
    COLLECTIONS,
    EXPORTER,
    FILTERING,
    INPUT_BATCHING,
    INPUT_STREAMING,
    STREAM_SQL,
    SYNDICATING,
    Stage,
)

_PRIORITIES = (
    *(SYNDICATING, ADAPTING, ADAPTING_TRANSFORMER, FILTERING, ADAPTING_SLOW),
    *(COLLECTIONS, EXPORTER, INPUT_STREAMING, INPUT_BATCHING, STREAM_SQL),
)
"""What senders were promised comes first; what inputs have not read waits in its source."""


@dataclass(frozen=True)
class Need:
    """The task slots that a stage can use, and those without which it cannot run."""

    stage: Stage
    least: int
    most: int


def plan(needs: Iterable[Need], available: int) -> dict[Stage, int]:
    """The task slots of each stage that runs: all get what they cannot do without, by priority, before any gets
    more."""
    by_priority = sorted(needs, key=lambda need: _PRIORITIES.index(need.stage))
    granted: dict[Stage, int] = {}
    for need in by_priority:
        if need.least <= available:
            granted[need.stage] = need.least
            available -= need.least
    for need in by_priority:
        if need.stage in granted:
            more = min(need.most - need.least, available)
            granted[need.stage] += more
            available -= more
    return granted
