"""Writes the audit log. Callers do so in the transaction of the change itself: both are saved or neither."""

from dataclasses import asdict
from typing import Any, Protocol
from uuid import UUID

from backend.apps.audit.models import AuditEntry
from backend.domain.diff import Change, changes

CHANGED = "CHANGED"
"""Stands for a secret that was set, replaced or removed."""


class Actor(Protocol):
    """A person, and the API key that acts on their behalf, if any."""

    username: str
    via: str


class Named(Protocol):
    """An object that people know by its name."""

    pk: Any

    @property
    def name(self) -> str: ...


def audit_record(
    *,
    action: str,
    actor: Actor | str,
    workspace: Named | UUID | None,
    target: Named | None = None,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
    secrets_changed: list[str] | None = None,
) -> None:
    """``before`` and ``after`` hold no secrets; ``secrets_changed`` names the paths of those that changed."""
    differences = changes(before or {}, after or {})
    differences += [Change(path, None, CHANGED) for path in secrets_changed or []]
    AuditEntry.objects.create(
        workspace_id=workspace if isinstance(workspace, UUID | None) else workspace.pk,
        actor=actor if isinstance(actor, str) else _name(actor),
        action=action,
        object_id=str(target.pk) if target is not None else "",
        object_name=target.name if target is not None else "",
        changes=[asdict(change) for change in differences],
    )


def _name(actor: Actor) -> str:
    return f"{actor.username} ({actor.via})" if actor.via else actor.username
