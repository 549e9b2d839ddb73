"""Queries on streams and tables."""

import hashlib

from backend.apps.sql.models import SqlSource
from backend.apps.workspaces.models import Workspace


def sources_revision(workspace: Workspace) -> str:
    """Differs as soon as a stream or table of the workspace is declared, changed or dropped."""
    digest = hashlib.sha256()
    for definition in SqlSource.objects.filter(workspace=workspace).values_list("definition", flat=True):
        digest.update(definition.encode() + b"\0")
    return digest.hexdigest()[:16]
