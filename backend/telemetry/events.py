"""The names of the events that are counted for each pipeline, shared by writers and readers."""

import bisect
from collections.abc import Iterator

from backend.domain.message import Redelivery
from backend.domain.stages import ADAPTING_TRANSFORMER, FILTERING, SYNDICATING

ACCEPTED = "input.accepted"
REPEATED = "input.repeated"
TRANSFORMED = "adapting.transformed"
DROPPED = "adapting.dropped"
DIVERTED = "adapting.diverted"
"""Messages that took the slow lane because their pipeline had used up its share of the usual one."""
OFFERED = "filtering.offered"
"""Messages that were offered to other pipelines' filters."""
MATCHED = "filtering.matched"
"""Messages of other pipelines that a pipeline's filter accepted."""

CAME_IN = (ACCEPTED, MATCHED)
"""What came in: posted, read, or taken from other pipelines by a filter."""

_PLACES = {ADAPTING_TRANSFORMER.name: "adapting", FILTERING.name: "filtering", SYNDICATING.name: "syndicating"}
"""The stages whose dead letters are redelivered, each as its events name it."""

STAGES_DEAD = tuple(f"{place}.dead" for place in _PLACES.values())
"""Messages that became dead letters for all their outputs: in a stage before the last, or in that before any output had
them."""
STAGES_REDELIVERED = tuple(f"{place}.redelivered" for place in _PLACES.values())
"""Dead letters of these that a stage has handled again, whatever came of it. Each was counted as dead before, so that
it is counted twice from then on, once as each of both."""


def dead_letter(stage: str, redelivery: Redelivery | None) -> Iterator[str]:
    """What a message counts as that has become a dead letter in a stage, by none of its outputs. One that was
    redelivered to a single output is a dead letter of that output still."""
    place = _place(stage, redelivery)
    yield f"{place}.dead"
    if redelivery is not None:
        yield f"{place}.redelivered"


def handled_again(stage: str, redelivery: Redelivery) -> str:
    """What a redelivered dead letter counts as that a stage has handled."""
    return f"{_place(stage, redelivery)}.redelivered"


def _place(stage: str, redelivery: Redelivery | None) -> str:
    if redelivery is not None and redelivery.output:
        return f"output.{redelivery.output}"
    return _PLACES.get(stage, stage)


STEP = "step."


def step_dropped(number: int) -> str:
    """Messages that the step with this number, counted from 1, dropped; DROPPED counts them too."""
    return f"{STEP}{number}.dropped"


def step_dead(number: int) -> str:
    """Messages that became dead letters in this step; ``adapting.dead`` counts them too."""
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
    return event in STAGES_DEAD or (event.startswith("output.") and event.endswith(".dead"))


def retried(output: str) -> str:
    return f"output.{output}.retried"


def suppressed(output: str) -> str:
    """Duplicates that were not sent, because the receiver already had the message."""
    return f"output.{output}.suppressed"


def dead(output: str) -> str:
    return f"output.{output}.dead"


def redelivered(output: str) -> str:
    """Dead letters, of the output or of a stage before it, that were redelivered to it and have an outcome."""
    return f"output.{output}.redelivered"


def called(api: str) -> str:
    return f"api.{api}.called"


def call_cached(api: str) -> str:
    """Calls that were answered from the cache."""
    return f"api.{api}.cached"


def call_retried(api: str) -> str:
    return f"api.{api}.retried"


def unanswered(api: str) -> str:
    return f"api.{api}.unanswered"
