"""How often a failed attempt is retried, and after what delays; how long a receiver is left alone that asks for it."""

import random
from datetime import UTC, datetime

from pydantic import Field

from backend.domain.model import StrictModel

LONGEST_HOLD_SECONDS = 6 * 3600.0
"""An output is held for this long at most, however long its receiver asks to be left alone (``Retry-After``). It is the
most that libcurl tells."""


class RetryPolicy(StrictModel):
    """How often a failed attempt is retried, and after what delays, until the retries are exhausted."""

    attempts: int = Field(4, ge=1, le=20, description="Total number of attempts, including the first one.")
    initial_seconds: float = Field(0.2, gt=0, le=60, description="Delay before the second attempt, in seconds.")
    factor: float = Field(
        3.0, ge=1, le=10, description="Factor by which each further delay is longer than the one before."
    )
    max_seconds: float = Field(10.0, gt=0, le=300, description="Longest delay between attempts, in seconds.")

    def wait(self, attempt: int, retry_after: float | None) -> float:
        """The delay after that attempt, in seconds: exponential with jitter, but at least ``retry_after``."""
        planned = min(self.initial_seconds * self.factor ** (attempt - 1), self.max_seconds)
        return max(planned * random.uniform(0.5, 1.0), retry_after or 0.0)


def held_seconds(asked: float | None) -> float | None:
    """How long an output is held whose receiver asks for so many seconds; None if it asks for no time."""
    return min(float(asked), LONGEST_HOLD_SECONDS) if asked is not None and asked > 0 else None


def held_text(until: float, *, who: str = "receiver") -> str:
    """Why a message is not sent before that Unix time."""
    moment = f"{datetime.fromtimestamp(until, UTC):%Y-%m-%d %H:%M:%S} UTC"
    return f"The {who} asked to be left alone until {moment}; the message waits until then."
