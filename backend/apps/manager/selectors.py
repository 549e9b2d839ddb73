"""Queries on leased inputs."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from django.http import Http404
from django.utils import timezone

from backend.apps.connectors.models import Connector
from backend.apps.manager.models import InputLease
from backend.apps.pipelines.models import Pipeline
from backend.domain import json
from backend.domain.capabilities import ReadBatch, Reading, ReadStream
from backend.domain.connector import connectors
from backend.domain.inputs.connector import Cause, ConnectorInput, changes_of_source
from backend.domain.model import UnreadableConfigError, label
from backend.domain.registry import UnknownComponentError

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
class Parts:
    """Of the batch that is read now: how many are not read to their ends, and how many there are."""

    left: int
    total: int


@dataclass(frozen=True)
class InputState:
    """What is known of the reading of a pipeline's input.

    ``rows`` have been read since ``began_at``, of about ``estimate`` if it is a batch; of a stream, that is how many
    records wait. A batch that a reader left unfinished is the same batch to its successor. Of one that is read in
    parts, ``rows`` is their sum.
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
    parts: Parts | None = None


def input_state(pipeline: Pipeline) -> InputState:
    leases = list(InputLease.objects.filter(pipeline=pipeline).order_by("part"))
    if not leases:
        return InputState(State.NONE)
    lease, *parts = leases
    readable = parts or leases
    failing = min((one for one in readable if one.failure), key=_failing_since, default=readable[0])
    reading = Reading(lease.reading)
    last = None
    if lease.last_began_at and lease.last_ended_at:
        last = CompleteBatch(lease.last_began_at, lease.last_ended_at, lease.last_rows or 0)
    now = timezone.now()
    held = any(one.locked_until is not None and one.locked_until > now for one in readable)
    return InputState(
        state=_state(failing.failure, paused=pipeline.paused, held=held),
        reading=reading,
        first=reading is Reading.BATCHING and last is None,
        began_at=lease.began_at,
        rows=sum(one.rows for one in leases),
        estimate=lease.estimate,
        last_batch=last,
        next_at=None if held or pipeline.paused else min(one.visible_at for one in readable),
        breakpoint=shortened(lease.breakpoint),
        failure=failing.failure,
        failing_since=failing.failing_since,
        parts=Parts(left=len(parts), total=lease.parts) if parts else None,
    )


def _failing_since(lease: InputLease) -> datetime:
    return lease.failing_since or timezone.now()


def _state(failure: str, *, paused: bool, held: bool) -> State:
    if paused:
        return State.PAUSED
    if failure:
        return State.FAILING
    return State.READING if held else State.IDLE


@dataclass(frozen=True)
class InputChange:
    """What publishing a version does to the reading of the input that is read now. Without ``causes`` and unless it
    ``ends``, reading goes on, or nothing has been read."""

    causes: Sequence[Cause] = ()
    """Why it starts anew."""
    ends: bool = False
    """Whether nothing is read any more, so that the position is given up."""

    @property
    def starts_anew(self) -> bool:
        return bool(self.causes)


def input_change(*, pipeline: Pipeline, number: int) -> InputChange:
    """What publishing that version does to the reading of the input. Raises Http404."""
    version = pipeline.versions.filter(number=number).first()
    if version is None:
        raise Http404
    lease = InputLease.objects.filter(pipeline=pipeline, part=0).first()
    try:
        source = version.load().input
    except UnreadableConfigError:
        return InputChange()  # it cannot be published
    if lease is None:
        return InputChange()
    if not isinstance(source, ConnectorInput):
        return InputChange(ends=was_read(lease))
    capability = reading_capability(source)
    return InputChange(causes_of_new_start(lease, source, capability) if capability is not None else ())


def was_read(lease: InputLease) -> bool:
    """Whether anything has been read of the input. A stream whose source keeps the position has no breakpoint here."""
    return bool(lease.breakpoint or lease.rows)


def present_input(lease: InputLease, capability: type[ReadBatch[Any, Any] | ReadStream[Any, Any]]) -> dict[str, Any]:
    """The lease's input with its options in their present form, if that capability reads it; as stored when they cannot
    be upgraded."""
    input: dict[str, Any] = lease.input
    try:
        options = capability.options_model.upgraded(input.get("options", {}), lease.options_version)
    except UnreadableConfigError:
        return input
    return input | {"options": options}


def causes_of_new_start(
    lease: InputLease, source: ConnectorInput, capability: type[ReadBatch[Any, Any] | ReadStream[Any, Any]]
) -> list[Cause]:
    """Why reading starts anew once that is the published input: the fields that say so. None when reading goes on, or
    when nothing has been read that would be read again."""
    same_connector = lease.input.get("connector") == str(source.connector)
    if same_connector and lease.reading != capability.reading:
        return [Cause("input.mode", label("mode"))] if was_read(lease) else []
    if not lease.breakpoint:
        return []
    causes = changes_of_source(present_input(lease, capability), source, capability)
    if same_connector and issubclass(capability, ReadStream):
        return causes if capability.goes_on_from(json.loads(lease.breakpoint)) else []
    return causes


def reading_capability(source: ConnectorInput) -> type[ReadBatch[Any, Any] | ReadStream[Any, Any]] | None:
    """By which the input is read; None when its connector or that one's type is gone, or cannot be read any more."""
    connector = Connector.objects.filter(pk=source.connector).first()
    try:
        capability = source.capability_of(connectors.get(connector.type)) if connector is not None else None
    except UnknownComponentError:
        return None
    assert capability is None or issubclass(capability, ReadBatch | ReadStream)
    return capability


def shortened(text: str) -> str:
    """As much of a breakpoint as is shown to people."""
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
