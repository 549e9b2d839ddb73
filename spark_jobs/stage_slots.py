"""Which stages run, with the task slots that Spark has."""

from collections.abc import Iterable
from dataclasses import dataclass

from backend.domain.stages import Stage


@dataclass(frozen=True)
class Need:
    """The task slots that a stage can use, and those without which it cannot run."""

    stage: Stage
    least: int
    most: int


def plan(needs: Iterable[Need], available: int) -> dict[Stage, int]:
    """The task slots of each stage that runs: all get what they cannot do without, by priority, before any gets
    more."""
    by_priority = sorted(needs, key=lambda need: need.stage.priority)
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
