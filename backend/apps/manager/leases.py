"""Leases of inputs that the data plane polls: each has one reader at a time, and a reader that died is replaced
by another. A large batch may be split into parts, each with a lease of its own.

A reader sends a heartbeat every few seconds, which also records how far it has come, so that its successor goes on
from there. The lease's token is a fencing token: every call presents it, and that of a reader which lost its lease is
rejected.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
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
_KEPT_OF_PARTS = ["part", "part_end", "parts", "began_at", "rows", "estimate"]
"""And what else, while a batch is read in parts: it is the same batch for the parts whose readers begin anew."""
_MOST_PARTS = 1000

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


_NO_PROGRESS = Progress()


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
        leases = _locked(pipeline)
        lease = leases[0] if leases else None
        former = present_input(lease, capability) if lease is not None else None
        read_as_before = lease is not None and lease.reading == capability.reading
        if former == input and read_as_before:
            return
        version = capability.options_model.schema_version
        if lease is not None and former is not None and read_as_before and _read_alike(former, input):
            now = timezone.now()
            for one in leases:
                one.input, one.options_version = input, version
                one.visible_at = _due(one, now)
            InputLease.objects.bulk_update(leases, ["input", "options_version", "visible_at"])
            return
        new: dict[str, Any] = {
            "pipeline": pipeline,
            "reading": capability.reading,
            "input": input,
            "options_version": version,
        }
        if lease is None:
            InputLease.objects.create(**new)
        elif causes := causes_of_new_start(lease, source, capability):
            _record_new_start(lease, causes)
            InputLease.objects.filter(pipeline=pipeline, part__gt=0).delete()
            InputLease(pk=lease.pk, **new).save()
        else:
            kept = [*_KEPT_FIELDS, *(_KEPT_OF_PARTS if lease.parts else [])]
            for one in leases:
                InputLease(pk=one.pk, **new, **{name: getattr(one, name) for name in kept}).save()


def _end(pipeline: Pipeline, *, replaced: bool) -> None:
    """Nothing is read any more; the audit log keeps the position when another input takes the place of this one."""
    with transaction.atomic():
        leases = _locked(pipeline)
        if not leases:
            return
        lease = leases[0]
        if replaced and was_read(lease):
            audit_record(
                action="pipeline.read_ended",
                actor="Headrace",
                workspace=pipeline.workspace,
                target=pipeline,
                before={"breakpoint": shortened(lease.breakpoint)},
                after={},
            )
        InputLease.objects.filter(pipeline=pipeline).delete()


def _locked(pipeline: Pipeline | UUID) -> list[InputLease]:
    """The lease of the whole and those of its parts, locked until the end of the transaction: in the order of their
    keys, as everywhere, so that no two transactions wait for each other. Parts come and go only while the whole is
    locked, so they are looked for once it is."""
    leases = InputLease.objects.select_for_update().filter(pipeline=pipeline).order_by("pk")
    leases.filter(part=0).first()
    return list(leases)


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
    """Up to ``limit`` leases that nobody holds, those that have waited longest first. Of several parts of a batch one,
    so that readers that ask in turn share them out."""
    now = timezone.now()
    with transaction.atomic():
        free = Q(locked_until=None) | Q(locked_until__lte=now)
        readable = _readable().filter(free, reading=reading, visible_at__lte=now, parts=0)
        offered = readable.order_by("visible_at", "pk").select_for_update(of=("self",), skip_locked=True)[:limit]
        first: dict[UUID, InputLease] = {}
        for lease in offered:
            first.setdefault(lease.pipeline_id, lease)
        claimed = list(first.values())
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
    nothing for too long, nor of readers whose breakpoint is no JSON. Also records progress by the leases' tokens, even
    of paused ones."""
    now = timezone.now()
    with transaction.atomic():
        leases = _held(held, now)
        valid = [lease for lease in leases if _record(lease, _of(lease, progress or {}), now)]
        renewed = [lease for lease in valid if not lease.pipeline.paused and lease.pipeline.published is not None]
        for lease in renewed:
            lease.locked_until = _lock(lease, now)
        InputLease.objects.bulk_update(valid, _PROGRESS_FIELDS)
    return renewed


def leases_release(held: Iterable[Held], progress: Mapping[UUID, Progress]) -> None:
    """Frees leases whose readers have stopped before the end. Another reader goes on where they were, after those of
    all other inputs that wait."""
    now = timezone.now()
    with transaction.atomic():
        leases = _held(held, now)
        for lease in leases:
            _record(lease, _of(lease, progress), now)
            _free(lease)
            lease.visible_at = now
        InputLease.objects.bulk_update(leases, [*_PROGRESS_FIELDS, "holder", "token", "visible_at"])


def leases_offer_failed(*, connector: Connector, **_: Any) -> None:
    """Inputs that wait after a failure are read again soon, since their connector has changed: its former password may
    have been the reason."""
    soon = timezone.now() + HEARD_AFTER
    failed = InputLease.objects.filter(input__connector=str(connector.pk), token=None).exclude(failure="")
    failed.filter(visible_at__gt=soon).update(visible_at=soon)


def batch_split(
    *, pipeline_id: UUID, token: UUID, parts: Sequence[tuple[bytes, bytes]], progress: Progress = _NO_PROGRESS
) -> None:
    """Puts leases of parts, each from one position to another, JSON documents, in the place of the lease of a whole
    batch, of which nothing has been read yet: its token is stale then. The first part begins where the whole does.

    Raises InvalidJsonError, and ConflictError when the lease was lost, or is that of a part or a stream.
    """
    for position in itertools.chain.from_iterable(parts):
        json.loads(position)
    now = timezone.now()
    with transaction.atomic():
        lease = next(iter(_held([(pipeline_id, token)], now)), None)
        if lease is None or lease.reading != Reading.BATCHING or lease.part:
            raise ConflictError("The lease is lost, or it is not one of a whole batch.")
        if not 1 < len(parts) <= _MOST_PARTS or not _record(lease, progress, now):
            raise ConflictError(f"A batch is split into 2 to {_MOST_PARTS:,} parts, and before anything is read of it.")
        InputLease.objects.bulk_create(
            InputLease(
                pipeline=lease.pipeline,
                part=number,
                reading=lease.reading,
                input=lease.input,
                options_version=lease.options_version,
                breakpoint=begins_at.decode(),
                part_end=ends_at.decode(),
                visible_at=now,
            )
            for number, (begins_at, ends_at) in enumerate(parts, 1)
        )
        lease.breakpoint, lease.parts = parts[0][0].decode(), len(parts)
        _free(lease)
        lease.save()


def batch_complete(
    *, pipeline_id: UUID, token: UUID, breakpoint: bytes = b"", failure: str = "", rows: int = 0
) -> None:
    """Ends a batch; the next begins at the breakpoint, a JSON document, after the input's interval. With a failure it
    is read again from there or, without a breakpoint, from the one that was recorded last, soon. A batch in parts ends
    with the last of them.

    Raises InvalidJsonError, and ConflictError when the lease was lost: another reader may have the same batch by then.
    """
    if breakpoint or not failure:
        json.loads(breakpoint)
    now = timezone.now()
    with transaction.atomic():
        leases = _locked(pipeline_id)
        lease = next(iter(_held([(pipeline_id, token)], now)), None)
        if lease is None or lease.reading != Reading.BATCHING:
            raise ConflictError(
                "The lease is lost: it ran out, or the input has changed. The batch will be read again."
            )
        if not _record(lease, Progress(breakpoint, rows, failure=failure), now):
            raise ConflictError("The reader reported more rows than there can be: the batch will be read again.")
        if not failure and lease.part:
            lease = _whole_without(lease, leases)
            if lease.parts:
                return
        if not failure:
            lease.last_began_at, lease.last_ended_at, lease.last_rows = lease.began_at, now, lease.rows
            lease.began_at, lease.rows, lease.estimate = None, 0, None
        _free(lease)
        lease.visible_at = now + (min(_interval(lease), RETRY_AFTER) if failure else _interval(lease))
        lease.save()


def _whole_without(part: InputLease, leases: Sequence[InputLease]) -> InputLease:
    """The lease of the whole after that part has ended: if it was the last one, it begins next where that has ended."""
    whole = leases[0]
    whole.rows = min(whole.rows + part.rows, models.BigIntegerField.MAX_BIGINT)
    if len(leases) == 2:
        whole.breakpoint, whole.parts, whole.failure, whole.failing_since = part.breakpoint, 0, "", None
    part.delete()
    whole.save()
    return whole


def _of(lease: InputLease, progress: Mapping[UUID, Progress]) -> Progress:
    return progress.get(lease.token, _NO_PROGRESS) if lease.token is not None else _NO_PROGRESS


def _held(held: Iterable[Held], now: datetime) -> list[InputLease]:
    """Those that the caller still holds, locked until the end of the transaction."""
    pairs = set(held)
    pipelines, tokens = {pipeline for pipeline, _ in pairs}, {token for _, token in pairs}
    leases = InputLease.objects.select_related("pipeline__published").filter(
        pipeline__in=pipelines, token__in=tokens, locked_until__gt=now
    )
    ordered = leases.order_by("pk").select_for_update(of=("self",))
    return [lease for lease in ordered if (lease.pipeline_id, lease.token) in pairs]


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
