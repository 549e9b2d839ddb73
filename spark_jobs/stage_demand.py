"""Which stages are wanted, and why."""

import time
from collections.abc import Callable, Iterable, Mapping

from backend.domain.demand import Demand
from backend.domain.stages import Stage


class StageDemand:
    """Decides which of an application's stages are wanted. Used by one thread."""

    def __init__(
        self,
        stages: Iterable[Stage],
        *,
        idle_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """A stage that nothing needs any more goes on for ``idle_seconds``: often messages come one after the other, or
        a pipeline that was unpublished is published again."""
        self._stages = tuple(stages)
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._needed_at: dict[Stage, float] = {}
        """When each of those that are wanted was needed last."""

    def unneeded(self, demands: Mapping[str, str] | None) -> set[Stage]:
        """The stages that only messages in their topics can need, given what the manager says."""
        if demands is None:
            return set()
        return {stage for stage in self._stages if stage.on_demand and stage.topic and stage.name not in demands}

    def wanted(self, demands: Mapping[str, str] | None, unhandled: Mapping[Stage, bool]) -> dict[Stage, str]:
        """The stages that are to run, each with the reason (Demand).

        ``demands`` is what the manager says; before it has ever answered, everything is wanted. ``unhandled`` says
        whether messages wait for a stage. As long as that is unknown of a stage which nothing else needs, it stays as
        it is.
        """
        wanted: dict[Stage, str] = {}
        now = self._clock()
        for stage in self._stages:
            why = self._why(stage, demands, unhandled)
            if why:
                self._needed_at[stage] = now
            elif stage in self._needed_at:
                is_known = stage.topic is None or stage in unhandled
                if is_known and now - self._needed_at[stage] >= self._idle_seconds:
                    del self._needed_at[stage]
                    continue
                why = Demand.RECENT
            if why:
                wanted[stage] = why
        return wanted

    @staticmethod
    def _why(stage: Stage, demands: Mapping[str, str] | None, unhandled: Mapping[Stage, bool]) -> str:
        """Empty when nothing needs it."""
        if not stage.on_demand:
            return Demand.ALWAYS
        if demands is None:
            return Demand.UNKNOWN
        if stage.name in demands:
            return demands[stage.name]
        return Demand.MESSAGES if unhandled.get(stage) else ""
