"""Removes exports that ended long ago. Their files stay in the store, and so do their names in the database."""

from datetime import timedelta

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from backend.apps.exports.models import Export, StoredName
from backend.apps.pipelines.models import Pipeline

_BATCH = 5_000


def exports_remove(*, keep: timedelta) -> int:
    """Removes those that were stored, and those that were aborted and cannot be retried any more, longer ago than
    that; returns how many. Changes rows in batches, so that neither memory nor locks grow with what has accumulated."""
    removed = 0
    while exports := list(_ended(keep)[:_BATCH]):
        removed += _remove(exports)
    return removed


def _ended(keep: timedelta) -> QuerySet[Export]:
    """The last file of an output is kept while its pipeline exists: the number of the next one follows from it."""
    stored = Q(state=Export.State.COMMITTED)
    aborted = Q(state=Export.State.ABORTED, slices=[], upload__isnull=True)
    later = Export.objects.filter(
        pipeline_id=OuterRef("pipeline_id"), output=OuterRef("output"), number__gt=OuterRef("number")
    )
    superseded = Exists(later) | ~Exists(Pipeline.objects.filter(pk=OuterRef("pipeline_id")))
    ended = Export.objects.filter(stored | aborted, closed_at__lt=timezone.now() - keep).filter(superseded)
    return ended.order_by("closed_at").only("pk", "connector_id", "path", "state")


def _remove(exports: list[Export]) -> int:
    # A name with the export's own id is never given again.
    names = [
        StoredName(connector_id=export.connector_id, path=export.path)
        for export in exports
        if export.state == Export.State.COMMITTED and export.connector_id and str(export.pk) not in export.path
    ]
    with transaction.atomic():
        StoredName.objects.bulk_create(names, ignore_conflicts=True)
        return Export.objects.filter(pk__in=[export.pk for export in exports]).delete()[0]
