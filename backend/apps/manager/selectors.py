"""Queries on leased inputs."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from django.utils import timezone

from backend.apps.manager.models import InputLease
from backend.apps.pipelines.models import Pipeline
from backend.domain.capabilities import Reading

_SHOWN_CHARACTERS = 2000


class State(StrEnum):
    """Of an input that is read."""

    NONE = "none"
    """The published version reads no input."""
    PAUSED = "paused"
    FAILING = "failing"
    READING = "reading"
    IDLE = "idle"


@dataclass(frozen=True)
class CompleteBatch:
    """The last batch that was read to its end."""

    began_at: datetime
    ended_at: datetime
    rows: int


@dataclass(frozen=True)
class InputState:
    """What is known of the reading of a pipeline's input.

    ``rows`` have been read since ``began_at``, of about ``estimate`` if it is a batch; of a stream, that is how many
    records wait. A batch that a reader left unfinished is the same batch to its successor.
    """

    state: State
    reading: Reading | None = None
    first: bool = False
    began_at: datetime | None = None
    rows: int = 0
    estimate: int | None = None
    last_batch: CompleteBatch | None = None
    next_at: datetime | None = None
    breakpoint: str = ""
    failure: str = ""
    failing_since: datetime | None = None


def input_state(pipeline: Pipeline) -> InputState:
    lease = InputLease.objects.filter(pipeline=pipeline).first()
    if lease is None:
        return InputState(State.NONE)
    reading = Reading(lease.reading)
    last = None
    if lease.last_began_at and lease.last_ended_at:
        last = CompleteBatch(lease.last_began_at, lease.last_ended_at, lease.last_rows or 0)
    held = lease.locked_until is not None and lease.locked_until > timezone.now()
    return InputState(
        state=_state(lease, paused=pipeline.paused, held=held),
        reading=reading,
        first=reading is Reading.BATCHING and last is None,
        began_at=lease.began_at,
        rows=lease.rows,
        estimate=lease.estimate,
        last_batch=last,
        next_at=None if held or pipeline.paused else lease.visible_at,
        breakpoint=_shortened(lease.breakpoint),
        failure=lease.failure,
        failing_since=lease.failing_since,
    )


def _state(lease: InputLease, *, paused: bool, held: bool) -> State:
    if paused:
        return State.PAUSED
    if lease.failure:
        return State.FAILING
    return State.READING if held else State.IDLE


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
