"""Leases of inputs that the data plane polls: each has one reader at a time, and a reader that died is replaced
by another.

A reader sends a heartbeat every few seconds, which also records how far it has come, so that its successor goes on
from there. The lease's token is a fencing token: every call presents it, and that of a reader which lost its lease is
rejected.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from django.db import models, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from backend.apps.audit.services import audit_record
from backend.apps.connectors.models import Connector
from backend.apps.connectors.signals import HEARD_AFTER
from backend.apps.manager.models import InputLease
from backend.apps.manager.selectors import causes_of_new_start, present_input, reading_capability, shortened, was_read
from backend.apps.pipelines.models import Pipeline
from backend.domain import json
from backend.domain.capabilities import Reading
from backend.domain.errors import ConflictError
from backend.domain.inputs.connector import Cause, ConnectorInput
from backend.domain.pipeline import PipelineConfig

LOCK = timedelta(seconds=60)
"""A reader without a heartbeat for this long loses its lease."""
RETRY_AFTER = timedelta(seconds=30)
"""A batch that failed is read again after this time, or after its input's interval if that is shorter: an input that is
read once a day would be a day late otherwise."""
LONGEST_BATCH = timedelta(minutes=30)
"""A reader of a batch that reads no record for this long loses its lease, however often it sends a heartbeat."""

_KEPT_FIELDS = ["breakpoint", "last_began_at", "last_ended_at", "last_rows"]
"""What stays true of an input whose reader has to begin anew where the former one was."""

Held = tuple[UUID, UUID]
"""A pipeline and the token of its lease."""

_INTERVAL = "every_seconds"
_OF_NO_READER = {_INTERVAL: None, "mode": None}
_PROGRESS_FIELDS = ["breakpoint", "rows", "estimate", "failure", "failing_since", "locked_until", "ends_at"]


@dataclass(frozen=True, slots=True)
class Progress:
    """What a reader has read since it got its lease.

    ``breakpoint`` is JSON, and empty when it is unchanged; Kafka has acknowledged everything before it. ``failure``
    is why the input cannot be read, empty when it can, and None as long as the reader does not know.
    """

    breakpoint: bytes = b""
    rows: int = 0
    estimate: int | None = None
    failure: str | None = None


def lease_follow(*, pipeline: Pipeline, config: PipelineConfig | None, **_: Any) -> None:
    """Creates the lease that the published version needs, or deletes it. When the input changes, its reader loses the
    lease, unless only what concerns no reader has changed, such as the interval; the breakpoint is kept as long as the
    same is read in the same way, and the audit log says when it is not."""
    source = config.input if config is not None else None
    if not isinstance(source, ConnectorInput):
        _end(pipeline, replaced=source is not None)
        return
    capability = reading_capability(source)
    if capability is None:
        return  # the lease keeps its breakpoint until the connector's type is there again
    input = source.model_dump(mode="json")
    with transaction.atomic():
        lease = InputLease.objects.select_for_update().filter(pipeline=pipeline).first()
        former = present_input(lease, capability) if lease is not None else None
        read_as_before = lease is not None and lease.reading == capability.reading
        if former == input and read_as_before:
            return
        version = capability.options_model.schema_version
        if lease is not None and former is not None and read_as_before and _read_alike(former, input):
            lease.input, lease.options_version = input, version
            lease.visible_at = _due(lease, timezone.now())
            lease.save(update_fields=["input", "options_version", "visible_at"])
            return
        kept: dict[str, Any] = {}
        if lease is not None and (causes := causes_of_new_start(lease, source, capability)):
            _record_new_start(lease, causes)
        elif lease is not None:
            kept = {name: getattr(lease, name) for name in _KEPT_FIELDS}
        new = InputLease(pipeline=pipeline, reading=capability.reading, input=input, options_version=version, **kept)
        new.save()


def _end(pipeline: Pipeline, *, replaced: bool) -> None:
    """Nothing is read any more; the audit log keeps the position when another input takes the place of this one."""
    with transaction.atomic():
        lease = InputLease.objects.select_for_update().filter(pipeline=pipeline).first()
        if lease is None:
            return
        if replaced and was_read(lease):
            audit_record(
                action="pipeline.read_ended",
                actor="Headrace",
                workspace=pipeline.workspace,
                target=pipeline,
                before={"breakpoint": shortened(lease.breakpoint)},
                after={},
            )
        lease.delete()


def _record_new_start(lease: InputLease, causes: list[Cause]) -> None:
    audit_record(
        action="pipeline.read_anew",
        actor="Headrace",
        workspace=lease.pipeline.workspace,
        target=lease.pipeline,
        before={"breakpoint": shortened(lease.breakpoint)},
        after={"changed": [cause.path for cause in causes]},
    )


def _read_alike(former: dict[str, Any], input: dict[str, Any]) -> bool:
    """Whether inputs that are read by the same capability differ at most in what concerns no reader: the interval, and
    whether that capability is chosen or is the only one."""
    return former | _OF_NO_READER == input | _OF_NO_READER


def _due(lease: InputLease, now: datetime) -> datetime:
    """When an input is read next whose interval may just have changed: a wait that has begun is as long as the new one,
    and one after a failure is no longer."""
    if lease.last_ended_at is not None and lease.began_at is None:
        return lease.last_ended_at + _interval(lease)
    return min(lease.visible_at, now + min(_interval(lease), RETRY_AFTER))


def _interval(lease: InputLease) -> timedelta:
    """From the end of a batch to the next one. Leases that an earlier release has stored have none of their own."""
    return timedelta(seconds=lease.input.get(_INTERVAL, ConnectorInput.model_fields[_INTERVAL].default))


def leases_claim(*, reading: Reading, holder: str, limit: int) -> list[InputLease]:
    """Up to ``limit`` leases that nobody holds, those that have waited longest first."""
    now = timezone.now()
    with transaction.atomic():
        free = Q(locked_until=None) | Q(locked_until__lte=now)
        offered = _readable().filter(free, reading=reading, visible_at__lte=now).order_by("visible_at")
        claimed = list(offered.select_for_update(of=("self",), skip_locked=True)[:limit])
        for lease in claimed:
            lease.holder, lease.token = holder, uuid4()
            lease.ends_at = now + LONGEST_BATCH if reading is Reading.BATCHING else None
            lease.locked_until = _lock(lease, now)
            lease.began_at = lease.began_at or now
            lease.earlier_rows = lease.rows
        fields = ["holder", "token", "ends_at", "locked_until", "began_at", "earlier_rows"]
        InputLease.objects.bulk_update(claimed, fields)
    return claimed


def leases_renew(held: Iterable[Held], progress: Mapping[UUID, Progress] | None = None) -> list[InputLease]:
    """Extends the leases still held by the caller: not those of paused or deleted pipelines, nor of batches that read
    nothing for too long, nor of readers whose breakpoint is no JSON. Also records progress, even of paused ones."""
    now = timezone.now()
    with transaction.atomic():
        leases = _held(held, now)
        valid = [lease for lease in leases if _record(lease, (progress or {}).get(lease.pk, Progress()), now)]
        renewed = [lease for lease in valid if not lease.pipeline.paused and lease.pipeline.published is not None]
        for lease in renewed:
            lease.locked_until = _lock(lease, now)
        InputLease.objects.bulk_update(valid, _PROGRESS_FIELDS)
    return renewed


def leases_release(held: Iterable[Held], progress: Mapping[UUID, Progress]) -> None:
    """Frees leases whose readers have stopped before the end. Another reader goes on where they were."""
    now = timezone.now()
    with transaction.atomic():
        leases = _held(held, now)
        for lease in leases:
            _record(lease, progress.get(lease.pk, Progress()), now)
            _free(lease)
        InputLease.objects.bulk_update(leases, [*_PROGRESS_FIELDS, "holder", "token"])


def leases_offer_failed(*, connector: Connector, **_: Any) -> None:
    """Inputs that wait after a failure are read again soon, since their connector has changed: its former password may
    have been the reason."""
    soon = timezone.now() + HEARD_AFTER
    failed = InputLease.objects.filter(input__connector=str(connector.pk), token=None).exclude(failure="")
    failed.filter(visible_at__gt=soon).update(visible_at=soon)


def batch_complete(
    *, pipeline_id: UUID, token: UUID, breakpoint: bytes = b"", failure: str = "", rows: int = 0
) -> None:
    """Ends a batch; the next begins at the breakpoint, a JSON document, after the input's interval. With a failure it
    is read again from there or, without a breakpoint, from the one that was recorded last, soon.

    Raises InvalidJsonError, and ConflictError when the lease was lost: another reader may have the same batch by then.
    """
    if breakpoint or not failure:
        json.loads(breakpoint)
    now = timezone.now()
    with transaction.atomic():
        lease = next(iter(_held([(pipeline_id, token)], now)), None)
        if lease is None or lease.reading != Reading.BATCHING:
            raise ConflictError(
                "The lease is lost: it ran out, or the input has changed. The batch will be read again."
            )
        if not _record(lease, Progress(breakpoint, rows, failure=failure), now):
            raise ConflictError("The reader reported more rows than there can be: the batch will be read again.")
        if not failure:
            lease.last_began_at, lease.last_ended_at, lease.last_rows = lease.began_at, now, lease.rows
            lease.began_at, lease.rows, lease.estimate = None, 0, None
        _free(lease)
        lease.visible_at = now + (min(_interval(lease), RETRY_AFTER) if failure else _interval(lease))
        lease.save()


def _held(held: Iterable[Held], now: datetime) -> list[InputLease]:
    """Those that the caller still holds, locked until the end of the transaction."""
    tokens = dict(held)
    leases = InputLease.objects.select_related("pipeline__published").filter(pk__in=tokens, locked_until__gt=now)
    ordered = leases.order_by("pk").select_for_update(of=("self",))
    return [lease for lease in ordered if lease.token == tokens[lease.pk]]


def _record(lease: InputLease, progress: Progress, now: datetime) -> bool:
    """Whether the progress makes sense; it is not recorded otherwise."""
    rows = lease.earlier_rows + progress.rows
    if max(rows, lease.earlier_rows + (progress.estimate or 0)) > models.BigIntegerField.MAX_BIGINT:
        return False
    if progress.breakpoint:
        try:
            json.loads(progress.breakpoint)
        except json.InvalidJsonError:
            return False
        lease.breakpoint = progress.breakpoint.decode()
    if rows > lease.rows:
        lease.rows = rows
        lease.ends_at = now + LONGEST_BATCH if lease.ends_at is not None else None
    if lease.reading == Reading.STREAMING:
        lease.estimate = progress.estimate
    elif progress.estimate is not None:
        lease.estimate = lease.earlier_rows + progress.estimate
    if progress.failure is not None:
        lease.failure = progress.failure.replace("\0", "")
        lease.failing_since = (lease.failing_since or now) if lease.failure else None
    return True


def _free(lease: InputLease) -> None:
    lease.holder, lease.token, lease.locked_until, lease.ends_at = "", None, None, None


def _readable() -> QuerySet[InputLease]:
    leases = InputLease.objects.select_related("pipeline__published")
    return leases.filter(pipeline__paused=False, pipeline__published__isnull=False)


def _lock(lease: InputLease, now: datetime) -> datetime:
    until = now + LOCK
    return until if lease.ends_at is None else min(until, lease.ends_at)
