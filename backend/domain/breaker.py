"""The circuit breaker of an output (seed 003, "Syndicating"): after several errors in a short
time nothing is sent for a penalty, then one message probes.

This is the reference that the script in Redis agrees with, and the view of an engine whose Redis is away.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum

from pydantic import ConfigDict, Field

from backend.domain.model import StrictModel

PROBE_SECONDS = 150.0
"""After this long a probe that told nothing is given up and the next message probes: longer than a try may take."""


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class BreakerPolicy(StrictModel):
    """When an output is left alone, and for how long."""

    model_config = ConfigDict(title="Circuit breaker")

    errors: int = Field(5, ge=1, le=1000, description="This many failed tries…")
    window_seconds: float = Field(60.0, gt=0, le=3600, description="…within this time open the breaker, in seconds.")
    open_seconds: float = Field(
        900.0, gt=0, le=86400, description="Nothing is sent for this long; then one message probes. In seconds."
    )


@dataclass
class Breaker:
    """One output's breaker. Times are seconds on any clock that does not go back."""

    policy: BreakerPolicy
    state: BreakerState = BreakerState.CLOSED
    until: float = 0.0
    """End of the penalty, or of the wait for the probe's outcome."""
    _errors: deque[float] = field(default_factory=deque)

    def admit(self, now: float) -> BreakerState:
        """What a message finds: CLOSED (send), HALF_OPEN (send: this one is the probe), OPEN (do not send)."""
        if self.state is BreakerState.CLOSED:
            return BreakerState.CLOSED
        if now < self.until:
            return BreakerState.OPEN
        self.state, self.until = BreakerState.HALF_OPEN, now + PROBE_SECONDS
        return BreakerState.HALF_OPEN

    def succeeded(self, *, probe: bool) -> None:
        if probe and self.state is BreakerState.HALF_OPEN:
            self.close()

    def failed(self, now: float, *, probe: bool) -> None:
        if self.state is BreakerState.CLOSED:
            self._errors.append(now)
            if len(self._errors) > self.policy.errors:
                self._errors.popleft()
            if len(self._errors) == self.policy.errors and now - self._errors[0] <= self.policy.window_seconds:
                self.open(now + self.policy.open_seconds)
        elif probe and self.state is BreakerState.HALF_OPEN:
            self.open(now + self.policy.open_seconds)

    def open(self, until: float) -> None:
        self.state, self.until = BreakerState.OPEN, until

    def close(self) -> None:
        self.state = BreakerState.CLOSED
        self._errors.clear()
