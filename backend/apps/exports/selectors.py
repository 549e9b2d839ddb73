"""Queries on exports."""

from typing import Any

from django.db.models import F, Min, QuerySet, Sum

from backend.apps.exports.forming import target_of
from backend.apps.exports.models import Export, StagedPart
from backend.apps.workspaces.models import Workspace
from backend.domain.model import UnreadableConfigError


def exports_of(workspace: Workspace) -> QuerySet[Export]:
    return Export.objects.filter(workspace_id=workspace.pk)


def is_anything_staged() -> bool:
    """Whether messages of any workspace are staged, so that files of them have to be stored, or parts to be removed."""
    return StagedPart.objects.exists()


def waiting_of(workspace: Workspace) -> list[dict[str, Any]]:
    """Staged messages that are in no file yet, by output and version, with the time by which they will be."""
    parts = StagedPart.objects.filter(workspace_id=workspace.pk, taken__lt=F("rows"))
    groups: Any = (
        parts.values("pipeline_id", "output", "version")
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
