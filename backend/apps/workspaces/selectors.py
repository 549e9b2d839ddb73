"""Queries on workspaces and keys."""

from collections.abc import Iterable
from typing import Any

from django.core.management.base import CommandError
from django.db.models import Q, QuerySet
from django.utils import timezone

from backend.apps.workspaces.models import ApiKey, Membership, Scope, User, Workspace
from backend.apps.workspaces.services import key_hash


def memberships_of(user: User) -> QuerySet[Membership]:
    return Membership.objects.filter(user=user).select_related("workspace").order_by("workspace__name")


def valid_keys() -> QuerySet[ApiKey]:
    return ApiKey.objects.filter(Q(expires_at=None) | Q(expires_at__gt=timezone.now()), revoked_at=None)


def key_by_text(text: str) -> ApiKey | None:
    """The usable key with that text."""
    return valid_keys().select_related("workspace", "created_by").filter(hash=key_hash(text)).first()


def ingest_keys() -> QuerySet[ApiKey]:
    return valid_keys().filter(scopes__contains=[Scope.INGEST])


def ingest_key_revisions(hashes: Iterable[str] | None = None) -> dict[str, Any]:
    """By hash, for all usable keys or those of these: equal as long as the key is the same."""
    keys = ingest_keys() if hashes is None else ingest_keys().filter(hash__in=hashes)
    return {hashed: revision for hashed, *revision in keys.values_list("hash", "workspace_id", "expires_at").iterator()}


def workspace_named(slug: str) -> Workspace:
    """For commands: the workspace with that short name, or the only one. Raises CommandError."""
    workspaces = list(Workspace.objects.filter(slug=slug) if slug else Workspace.objects.all()[:2])
    if len(workspaces) != 1:
        known = ", ".join(Workspace.objects.order_by("slug").values_list("slug", flat=True))
        raise CommandError(f"Choose a workspace with --workspace; there are: {known or 'none'}.")
    return workspaces[0]
