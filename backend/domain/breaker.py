"""The circuit breaker of an output: after several errors within a short time nothing is sent for a while, then a single
message probes whether the receiver works again.

A message is one error, however often it is tried: from its first failed attempt on, until it is delivered after all.
Answers that reject only the message (``DeliveryError.about_message``) are none.

The Lua scripts in Redis implement the same rules. This implementation is their reference, and the fallback while Redis
is unavailable.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum

from pydantic import ConfigDict, Field

from backend.domain.model import StrictModel

PROBE_SECONDS = 150.0
"""A probe without an outcome expires after this time, and the next message probes. Longer than any attempt takes."""


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class BreakerPolicy(StrictModel):
    """When deliveries to an output are suspended, and for how long."""

    model_config = ConfigDict(title="Circuit breaker")

    errors: int = Field(
        5,
        ge=1,
        le=1000,
        description="Number of failed messages within the window that opens the breaker. However often a message is "
        "tried, it counts once, and no longer once it is delivered. A receiver's final rejection of a single message "
        "(4xx other than 401, 402, 403, 407 and 429) does not count.",
    )
    window_seconds: float = Field(
        60.0, gt=0, le=3600, description="Length of the window in which failed messages are counted, in seconds."
    )
    open_seconds: float = Field(
        900.0,
        gt=0,
        le=86400,
        description="How long nothing is sent before a single message probes the output, in seconds.",
    )


@dataclass
class Breaker:
    """The breaker of one output. Times are seconds of any monotonic clock."""

    policy: BreakerPolicy
    state: BreakerState = BreakerState.CLOSED
    until: float = 0.0
    """When the open state ends, or when the current probe expires."""
    _errors: deque[tuple[float, str]] = field(default_factory=deque)
    """Since it was last closed: when, and which message."""

    def admit(self, now: float) -> BreakerState:
        """The decision for one message: CLOSED (send it), HALF_OPEN (send it as the probe) or OPEN (do not send it)."""
        if self.state is BreakerState.CLOSED:
            return BreakerState.CLOSED
        if now < self.until:
            return BreakerState.OPEN
        self.state, self.until = BreakerState.HALF_OPEN, now + PROBE_SECONDS
        return BreakerState.HALF_OPEN

    def succeeded(self, *, probe: bool) -> None:
        if probe and self.state is BreakerState.HALF_OPEN:
            self.close()

    def failed(self, now: float, *, probe: bool, message: str = "") -> None:
        """To be called once for a message, however often it is tried."""
        if self.state is BreakerState.CLOSED:
            self._errors.append((now, message))
            if len(self._errors) > self.policy.errors:
                self._errors.popleft()
            if len(self._errors) == self.policy.errors and now - self._errors[0][0] <= self.policy.window_seconds:
                self.open(now + self.policy.open_seconds)
        elif probe and self.state is BreakerState.HALF_OPEN:
            self.open(now + self.policy.open_seconds)

    def recovered(self, message: str) -> None:
        """The message that had failed was delivered after all."""
        self._errors = deque(error for error in self._errors if error[1] != message)

    def open(self, until: float) -> None:
        self.state, self.until = BreakerState.OPEN, until

    def close(self) -> None:
        self.state = BreakerState.CLOSED
        self._errors.clear()
