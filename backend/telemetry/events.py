"""What is counted, by pipeline: the names that writers and readers share."""

import bisect

ACCEPTED = "input.accepted"
REPEATED = "input.repeated"
TRANSFORMED = "adapting.transformed"
DROPPED = "adapting.dropped"
DIVERTED = "adapting.diverted"
"""Messages that went through the slow lane, their pipeline's share being taken."""
ADAPTING_DEAD = "adapting.dead"
OFFERED = "filtering.offered"
"""Messages that were offered to the filters of others."""
MATCHED = "filtering.matched"
"""Messages of others that a pipeline's filter took."""


LATENCY = "latency."
LATENCY_BOUNDS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 120_000)
"""Upper bounds, in milliseconds, of the classes that latencies are counted in."""


def latency(output: str, seconds: float) -> str:
    """A delivery's class by how long the receiver took."""
    index = bisect.bisect_left(LATENCY_BOUNDS, seconds * 1000)
    return f"{LATENCY}{output}.{LATENCY_BOUNDS[min(index, len(LATENCY_BOUNDS) - 1)]}"


def delivered(output: str) -> str:
    return f"output.{output}.delivered"


def retried(output: str) -> str:
    return f"output.{output}.retried"


def suppressed(output: str) -> str:
    """Repeats that the receiver had already."""
    return f"output.{output}.suppressed"


def dead(output: str) -> str:
    return f"output.{output}.dead"


def called(api: str) -> str:
    return f"api.{api}.called"


def call_cached(api: str) -> str:
    """Answers that were still known."""
    return f"api.{api}.cached"


def call_retried(api: str) -> str:
    return f"api.{api}.retried"


def unanswered(api: str) -> str:
    return f"api.{api}.unanswered"
