"""The names of the events that are counted for each pipeline, shared by writers and readers."""

import bisect

ACCEPTED = "input.accepted"
REPEATED = "input.repeated"
TRANSFORMED = "adapting.transformed"
DROPPED = "adapting.dropped"
DIVERTED = "adapting.diverted"
"""Messages that took the slow lane because their pipeline had used up its share of the usual one."""
ADAPTING_DEAD = "adapting.dead"
OFFERED = "filtering.offered"
"""Messages that were offered to other pipelines' filters."""
MATCHED = "filtering.matched"
"""Messages of other pipelines that a pipeline's filter accepted."""

CAME_IN = (ACCEPTED, MATCHED)
"""What came in: posted, read, or taken from other pipelines by a filter."""

STEP = "step."


def step_dropped(number: int) -> str:
    """Messages that the step with this number, counted from 1, dropped; DROPPED counts them too."""
    return f"{STEP}{number}.dropped"


def step_dead(number: int) -> str:
    """Messages that became dead letters in this step; ADAPTING_DEAD counts them too."""
    return f"{STEP}{number}.dead"


LATENCY = "latency."
LATENCY_BOUNDS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 120_000)
"""Upper bounds of the latency histogram's buckets, in milliseconds."""


def latency(output: str, seconds: float) -> str:
    """The bucket of a delivery that took the receiver this long."""
    index = bisect.bisect_left(LATENCY_BOUNDS, seconds * 1000)
    return f"{LATENCY}{output}.{LATENCY_BOUNDS[min(index, len(LATENCY_BOUNDS) - 1)]}"


def delivered(output: str) -> str:
    return f"output.{output}.delivered"


def is_delivered(event: str) -> bool:
    """Whether it counts deliveries, of any output."""
    return event.startswith("output.") and event.endswith(".delivered")


def is_dead(event: str) -> bool:
    """Whether it counts messages that became dead letters, in any stage."""
    return event == ADAPTING_DEAD or (event.startswith("output.") and event.endswith(".dead"))


def retried(output: str) -> str:
    return f"output.{output}.retried"


def suppressed(output: str) -> str:
    """Duplicates that were not sent, because the receiver already had the message."""
    return f"output.{output}.suppressed"


def dead(output: str) -> str:
    return f"output.{output}.dead"


def called(api: str) -> str:
    return f"api.{api}.called"


def call_cached(api: str) -> str:
    """Calls that were answered from the cache."""
    return f"api.{api}.cached"


def call_retried(api: str) -> str:
    return f"api.{api}.retried"


def unanswered(api: str) -> str:
    return f"api.{api}.unanswered"
