"""The statements of a workspace, without secrets; the oldest are forgotten."""

from django.db.models import QuerySet

from backend.apps.sql.models import SqlStatement
from backend.apps.workspaces.models import User, Workspace

KEPT = 1_000
"""Statements of each workspace."""


def history_add(*, workspace: Workspace, actor: User, text: str, error: str = "") -> SqlStatement:
    """``text`` and ``error`` hold no secrets."""
    statement = SqlStatement.objects.create(workspace=workspace, actor=actor.username, text=text, error=error)
    if forgotten := history_of(workspace)[KEPT : KEPT + 1].first():
        history_of(workspace).filter(pk__lte=forgotten.pk).delete()
    return statement


def history_of(workspace: Workspace) -> QuerySet[SqlStatement]:
    """The newest first."""
    return SqlStatement.objects.filter(workspace=workspace)
