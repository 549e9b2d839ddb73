"""How often and how patiently something that failed is tried again."""

import random

from pydantic import Field

from backend.domain.model import StrictModel


class RetryPolicy(StrictModel):
    """How often and how patiently a failed try is repeated before it is given up."""

    attempts: int = Field(4, ge=1, le=20, description="Tries in all, the first included.")
    initial_seconds: float = Field(0.2, gt=0, le=60, description="Wait before the second try, in seconds.")
    factor: float = Field(3.0, ge=1, le=10, description="Each further wait is this many times the one before.")
    max_seconds: float = Field(10.0, gt=0, le=300, description="No wait is longer than this, in seconds.")

    def wait(self, attempt: int, retry_after: float | None) -> float:
        """Seconds after that attempt: exponential with jitter, but no sooner than the other side wishes."""
        planned = min(self.initial_seconds * self.factor ** (attempt - 1), self.max_seconds)
        return max(planned * random.uniform(0.5, 1.0), retry_after or 0.0)
