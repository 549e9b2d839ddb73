"""Writing the audit log. Callers do so in the transaction of the change itself: both are saved or neither."""

from dataclasses import asdict
from typing import Any, Protocol
from uuid import UUID

from backend.apps.audit.models import AuditEntry
from backend.apps.workspaces.models import User, Workspace
from backend.domain.diff import Change, changes

CHANGED = "CHANGED"
"""Stands for a secret that was set, replaced or removed."""


class Named(Protocol):
    """An object that people know by its name."""

    pk: Any

    @property
    def name(self) -> str: ...


def audit_record(
    *,
    action: str,
    actor: User | str,
    workspace: Workspace | UUID | None,
    target: Named | None = None,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
    secrets_changed: list[str] | None = None,
) -> None:
    """``before`` and ``after`` hold no secrets; ``secrets_changed`` names the paths of those that changed."""
    found = changes(before or {}, after or {})
    found += [Change(path, None, CHANGED) for path in secrets_changed or []]
    AuditEntry.objects.create(
        workspace_id=workspace.pk if isinstance(workspace, Workspace) else workspace,
        actor=_name(actor) if isinstance(actor, User) else actor,
        action=action,
        object_id=str(target.pk) if target is not None else "",
        object_name=target.name if target is not None else "",
        changes=[asdict(change) for change in found],
    )


def _name(user: User) -> str:
    return f"{user.username} ({user.via})" if user.via else user.username
