"""Queries on exports."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Count, F, Min, QuerySet, Sum

from backend.apps.exports.forming import target_of
from backend.apps.exports.models import Export, StagedPart
from backend.apps.workspaces.models import Workspace
from backend.domain.model import UnreadableConfigError
from backend.domain.status import GatheredMessages, UnstoredFiles

OPEN = (Export.State.STAGED, Export.State.WRITING, Export.State.FAILED)
"""What is not stored yet, and will be."""
_OUTPUT = ("pipeline_id", "output")


def exports_of(workspace: Workspace) -> QuerySet[Export]:
    return Export.objects.filter(workspace_id=workspace.pk)


def unstored_files(
    pipeline_ids: Iterable[UUID], *, made_before: datetime | None = None
) -> dict[UUID, list[UnstoredFiles]]:
    """Files that could not be stored, by pipeline, together for each output with the latest of their errors. One that
    is being tried again counts until it is stored."""
    failed = Export.objects.filter(pipeline_id__in=pipeline_ids, failures__gt=0, state__in=OPEN)
    if made_before is not None:
        failed = failed.filter(created_at__lt=made_before)
    newest = failed.order_by("pipeline_id", "output", "-pk").distinct("pipeline_id", "output")
    errors = {(pipeline, output): error for pipeline, output, error in newest.values_list(*_OUTPUT, "error")}
    groups: Any = failed.values(*_OUTPUT).annotate(count=Count("pk"), since=Min("created_at"), next_try=Min("due_at"))
    files: dict[UUID, list[UnstoredFiles]] = {}
    for group in groups:
        error = errors.get((pipeline_id := group.pop("pipeline_id"), group["output"]), "")
        files.setdefault(pipeline_id, []).append(UnstoredFiles(**group, error=error))
    return files


def is_anything_to_store() -> bool:
    """Whether any workspace has files to be stored, messages that are staged for them, or parts to be removed."""
    return StagedPart.objects.exists() or Export.objects.filter(due_at__isnull=False).exists()


def waiting_of(workspace: Workspace) -> list[dict[str, Any]]:
    """Staged messages that are in no file yet, by output and version, with the time by which they will be."""
    return _waiting(StagedPart.objects.filter(workspace_id=workspace.pk))


def gathered_messages(pipeline_ids: Iterable[UUID]) -> dict[UUID, GatheredMessages]:
    """Staged messages that are in no file yet, by pipeline."""
    gathered: dict[UUID, GatheredMessages] = {}
    for group in _waiting(StagedPart.objects.filter(pipeline_id__in=pipeline_ids)):
        others = gathered.get(group["pipeline_id"], GatheredMessages(0, None))
        due = min(filter(None, (others.due, group["due_at"])), default=None)
        gathered[group["pipeline_id"]] = GatheredMessages(others.count + group["messages"], due)
    return gathered


def _waiting(parts: QuerySet[StagedPart]) -> list[dict[str, Any]]:
    groups: Any = (
        parts.filter(taken__lt=F("rows"))
        .values("pipeline_id", "output", "version")
        .annotate(
            messages=Sum(F("rows") - F("taken")),
            size=Sum(F("bytes") * (F("rows") - F("taken")) / F("rows")),
            oldest=Min("staged_at"),
        )
        .order_by("oldest")
    )
    return [group | {"due_at": _due_at(group)} for group in groups]


def _due_at(group: dict[str, Any]) -> Any:
    """None when only the number of messages or bytes decides."""
    try:
        target = target_of(group["pipeline_id"], group["output"], group["version"])
    except (LookupError, UnreadableConfigError):
        return None
    return target.policy.next_due(group["oldest"]) if target else None
