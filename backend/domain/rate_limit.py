"""The rate limit of an output, as a generic cell rate algorithm.

Tokens are spaced evenly; ``burst`` of them may come early. Any window of one period then holds
at most ``messages + burst``. This is the reference for the script in Redis, and the
limit of an engine while Redis is unavailable.
"""

import math
from dataclasses import dataclass

from pydantic import ConfigDict, Field

from backend.domain.model import StrictModel

_SPACING = 1.01
"""Tokens are spaced wider than the limit requires by this factor, which allows for network jitter."""


class RateLimitPolicy(StrictModel):
    """The largest number of messages sent to a receiver."""

    model_config = ConfigDict(title="Rate limit")

    messages: int = Field(ge=1, le=1_000_000, description="At most this many attempts…", examples=[100])
    period_seconds: float = Field(1.0, gt=0, le=86400, description="…in any period of this length, in seconds.")
    burst: int = Field(0, ge=0, le=1_000_000, description="Extra messages allowed in a burst after an idle period.")

    @property
    def interval(self) -> float:
        """Seconds between two tokens."""
        return self.period_seconds / self.messages * _SPACING


@dataclass
class RateLimit:
    """One output's limit. Times are seconds on any clock that does not go back."""

    policy: RateLimitPolicy
    full_at: float = 0.0
    """When all tokens are available again: GCRA's theoretical arrival time."""

    def take(self, now: float, count: int, horizon: float) -> list[float]:
        """Up to ``count`` tokens: the times from which each may be used, at most ``horizon`` seconds from now."""
        times: list[float] = []
        while len(times) < count and self.next_at(now) - now <= horizon:
            times.append(self.next_at(now))
            self.full_at = max(self.full_at, now) + self.policy.interval
        return times

    def next_at(self, now: float) -> float:
        """When the next token may be used."""
        return max(now, self.full_at - self.policy.burst * self.policy.interval)

    def available(self, now: float) -> int:
        """How many tokens may be used at once."""
        waiting = max(self.full_at - now, 0.0) / self.policy.interval
        # Redis rounds times to microseconds.
        return max(math.floor(self.policy.burst + 1 - waiting + 1e-4), 0)
