"""Leases of inputs that the data plane polls: each has one reader at a time, and a reader that died is replaced
by another.

A reader sends a heartbeat every few seconds. The lease's token is a fencing token: every call presents it, and
that of a reader which lost its lease is rejected.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from backend.apps.connectors.models import Connector
from backend.apps.connectors.services import connector_type
from backend.apps.manager.models import InputLease
from backend.apps.pipelines.models import Pipeline
from backend.domain import json
from backend.domain.capabilities import ReadBatch, Reading, ReadStream
from backend.domain.errors import ConflictError
from backend.domain.inputs.connector import ConnectorInput

LOCK = timedelta(seconds=60)
"""A reader without a heartbeat for this long loses its lease."""
BATCHES_EVERY = timedelta(seconds=30)
LONGEST_BATCH = timedelta(minutes=30)

Held = tuple[UUID, UUID]
"""A pipeline and the token of its lease."""


def lease_follow(*, pipeline: Pipeline, **_: Any) -> None:
    """Creates the lease that the published version needs, or deletes it. When the input changes, its reader loses the
    lease; the breakpoint is kept as long as connector and options are the same."""
    reading, config = _read_input(pipeline)
    if reading is None:
        InputLease.objects.filter(pipeline=pipeline).delete()
        return
    with transaction.atomic():
        lease = InputLease.objects.select_for_update().filter(pipeline=pipeline).first()
        if lease is not None and lease.input == config:
            return
        same_source = lease is not None and _source(lease.input) == _source(config)
        breakpoint = lease.breakpoint if lease is not None and same_source else ""
        InputLease(pipeline=pipeline, reading=reading, input=config, breakpoint=breakpoint).save()


def _source(config: dict[str, Any]) -> tuple[Any, Any]:
    """The parts of an input that its breakpoint depends on."""
    return config.get("connector"), config.get("options")


def _read_input(pipeline: Pipeline) -> tuple[Reading | None, dict[str, Any]]:
    """How the published input is read, or None if it is not, and its configuration."""
    version = pipeline.published
    source = version.load().input if version is not None else None
    if not isinstance(source, ConnectorInput):
        return None, {}
    connector = Connector.objects.get(pk=source.connector)
    capability = source.capability_of(connector_type(connector.type))
    assert capability is not None
    assert issubclass(capability, ReadBatch | ReadStream)
    return capability.reading, source.model_dump(mode="json")


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
            lease.save()
    return claimed


def leases_renew(held: Iterable[Held]) -> list[InputLease]:
    """Extends the leases still held by the caller: not those of paused or deleted pipelines, nor of batches that took
    too long."""
    tokens = dict(held)
    now = timezone.now()
    with transaction.atomic():
        leases = _readable().filter(pk__in=tokens, locked_until__gt=now).order_by("pk")
        renewed = [lease for lease in leases.select_for_update(of=("self",)) if lease.token == tokens[lease.pk]]
        for lease in renewed:
            lease.locked_until = _lock(lease, now)
            lease.save(update_fields=["locked_until"])
    return renewed


def batch_complete(*, pipeline_id: UUID, token: UUID, breakpoint: bytes = b"", failure: str = "") -> None:
    """Ends a batch; the next begins at the breakpoint, a JSON document. With a failure it begins where this one did.

    Raises InvalidJsonError, and ConflictError when the lease was lost: another reader may have the same batch by then.
    """
    changes = {"failure": failure.replace("\0", "")}
    if not failure:
        json.loads(breakpoint)
        changes["breakpoint"] = breakpoint.decode()
    now = timezone.now()
    held = InputLease.objects.filter(pk=pipeline_id, token=token, locked_until__gt=now, reading=Reading.BATCHING)
    free: dict[str, Any] = {"token": None, "holder": "", "locked_until": None, "ends_at": None}
    if not held.update(**free, **changes, visible_at=now + BATCHES_EVERY):
        raise ConflictError("The lease is lost: it ran out, or the input has changed. The batch will be read again.")


def _readable() -> QuerySet[InputLease]:
    leases = InputLease.objects.select_related("pipeline__published")
    return leases.filter(pipeline__paused=False, pipeline__published__isnull=False)


def _lock(lease: InputLease, now: datetime) -> datetime:
    until = now + LOCK
    return until if lease.ends_at is None else min(until, lease.ends_at)
