"""What is staged: positions, parts, and the removal of parts that nobody needs any more."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils import timezone

from backend.apps.exports.models import Export, StagedPart, StagingPosition
from backend.domain.errors import ConflictError


def staging_positions(partitions: Iterable[int]) -> dict[int, int]:
    """The next offset to stage, by partition; those that were never staged are left out."""
    rows = StagingPosition.objects.filter(partition__in=list(partitions))
    return {row.partition: row.offset for row in rows}


def staging_restart() -> None:
    """Lets the exporter's topic be staged from the first record. Nothing may be staging."""
    StagingPosition.objects.all().delete()


def parts_register(*, partition: int, start: int | None, end: int, parts: list[dict[str, Any]]) -> None:
    """Adds what a partition's records from ``start`` to before ``end`` were staged as. ``start`` is None when nothing
    was staged before.

    Raises ConflictError when the partition is staged up to somewhere else: these records are staged already.
    """
    try:
        with transaction.atomic():
            if start is None:
                StagingPosition.objects.create(partition=partition, offset=end)
            elif not StagingPosition.objects.filter(partition=partition, offset=start).update(offset=end):
                raise ConflictError(f"Partition {partition} is not staged up to {start} now.")
            StagedPart.objects.bulk_create([StagedPart(**part) for part in parts])
    except IntegrityError:
        raise ConflictError(f"Partition {partition} was staged by another task.") from None


def parts_release(slices: Iterable[list[Any]]) -> None:
    """A file does not need its parts any more."""
    StagedPart.objects.filter(pk__in=[part for part, *_ in slices]).update(users=F("users") - 1)


def parts_unused(limit: int) -> list[StagedPart]:
    """Parts whose rows are all in files that are complete, or that were aborted too long ago to be retried."""
    _expire_aborted()
    return list(StagedPart.objects.filter(taken=F("rows"), users=0).order_by("pk")[:limit])


def parts_forget(part_ids: Iterable[int]) -> None:
    """Once their files are removed."""
    StagedPart.objects.filter(pk__in=list(part_ids), taken=F("rows"), users=0).delete()


def paths_unknown(paths: list[str]) -> list[str]:
    """Those of the staged files that belong to no part."""
    known = set(StagedPart.objects.filter(path__in=paths).values_list("path", flat=True))
    return [path for path in paths if path not in known]


def _expire_aborted() -> None:
    before = timezone.now() - timedelta(days=settings.CONSOLE.aborted_exports_kept_days)
    with transaction.atomic():
        aborted = Export.objects.filter(state=Export.State.ABORTED, closed_at__lt=before).exclude(slices=[])
        for export in aborted.select_for_update(skip_locked=True)[:100]:
            parts_release(export.slices)
            export.slices = []
            export.save(update_fields=["slices"])
