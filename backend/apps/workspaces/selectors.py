"""Questions about workspaces and keys."""

from django.db.models import Q, QuerySet
from django.utils import timezone

from backend.apps.workspaces.models import ApiKey, Membership, Scope, User
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
