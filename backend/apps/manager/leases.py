"""Leases of inputs that the data plane reads by itself: each has one reader at a time, and one that died is followed
by another.

A reader says every few seconds that it lives. Whatever it does with a lease it shows the lease's token: that of a
reader who was given up is worth nothing.
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
"""A reader that is silent for so long has lost its lease."""
BATCHES_EVERY = timedelta(seconds=30)
LONGEST_BATCH = timedelta(minutes=30)

Held = tuple[UUID, UUID]
"""A pipeline and the token of its lease."""


def lease_follow(*, pipeline: Pipeline, **_: Any) -> None:
    """Makes the lease that the version in force needs, or takes it away. A reader of what has changed loses it; the
    breakpoint stays while connector and options do."""
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
    """What a breakpoint is of."""
    return config.get("connector"), config.get("options")


def _read_input(pipeline: Pipeline) -> tuple[Reading | None, dict[str, Any]]:
    """How the published input is read, None when it is not, and its configuration."""
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
    """Up to so many that nobody holds, those that have waited longest first."""
    now = timezone.now()
    with transaction.atomic():
        free = Q(locked_until=None) | Q(locked_until__lte=now)
        offered = _in_force().filter(free, reading=reading, visible_at__lte=now).order_by("visible_at")
        found = list(offered.select_for_update(of=("self",), skip_locked=True)[:limit])
        for lease in found:
            lease.holder, lease.token = holder, uuid4()
            lease.ends_at = now + LONGEST_BATCH if reading is Reading.BATCHING else None
            lease.locked_until = _lock(lease, now)
            lease.save()
    return found


def leases_renew(held: Iterable[Held]) -> list[InputLease]:
    """Those that are still theirs: not those of pipelines that are paused or gone, nor of batches that took too
    long."""
    tokens = dict(held)
    now = timezone.now()
    with transaction.atomic():
        leases = _in_force().filter(pk__in=tokens, locked_until__gt=now).order_by("pk")
        found = [lease for lease in leases.select_for_update(of=("self",)) if lease.token == tokens[lease.pk]]
        for lease in found:
            lease.locked_until = _lock(lease, now)
            lease.save(update_fields=["locked_until"])
    return found


def batch_complete(*, pipeline_id: UUID, token: UUID, breakpoint: bytes = b"", failure: str = "") -> None:
    """Ends a batch; the next begins at the breakpoint, a JSON document. With a failure it begins where this one did.

    Raises InvalidJsonError, and ConflictError when the lease was lost: another may have read the same by then.
    """
    changes = {"failure": failure.replace("\0", "")}
    if not failure:
        json.loads(breakpoint)
        changes["breakpoint"] = breakpoint.decode()
    now = timezone.now()
    mine = InputLease.objects.filter(pk=pipeline_id, token=token, locked_until__gt=now, reading=Reading.BATCHING)
    free: dict[str, Any] = {"token": None, "holder": "", "locked_until": None, "ends_at": None}
    if not mine.update(**free, **changes, visible_at=now + BATCHES_EVERY):
        raise ConflictError("The lease is lost: it ran out, or the input has changed. The batch will be read again.")


def _in_force() -> QuerySet[InputLease]:
    leases = InputLease.objects.select_related("pipeline__published")
    return leases.filter(pipeline__paused=False, pipeline__published__isnull=False)


def _lock(lease: InputLease, now: datetime) -> datetime:
    until = now + LOCK
    return until if lease.ends_at is None else min(until, lease.ends_at)
