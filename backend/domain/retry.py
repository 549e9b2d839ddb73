"""How often a failed attempt is retried, and after what delays."""

import random

from pydantic import Field

from backend.domain.model import StrictModel


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
