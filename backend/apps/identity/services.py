"""People whom the identity provider vouches for, and what they may do here."""

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet

from backend.apps.audit.services import audit_record
from backend.apps.identity.models import ProviderSession
from backend.apps.workspaces.models import Membership, Role, User, Workspace


def user_from_claims(*sources: dict[str, Any]) -> User:
    """The person that the claims speak of, made at the first sign-in; memberships follow the claims each time."""
    claims = {name: value for source in reversed(sources) for name, value in source.items()}
    with transaction.atomic():
        user = User.objects.filter(subject=claims["sub"]).first()
        if user is None:
            user = User.objects.create_user(_free_username(claims), email=claims.get("email"), subject=claims["sub"])
        _sync_memberships(user, _roles(sources))
    return user


def session_record(*, action: str, username: str) -> None:
    """A sign-in, refused or not, or a sign-out; in the log of each workspace that the person is in."""
    workspaces: list[Workspace | None] = list(Workspace.objects.filter(membership__user__username=username))
    for workspace in workspaces or [None]:
        audit_record(action=action, actor=username[:200], workspace=workspace)


def provider_sessions_end(sessions: QuerySet[ProviderSession]) -> None:
    """Signs out what came from these sessions of the provider, which has ended them."""
    store = import_module(settings.SESSION_ENGINE).SessionStore
    for session in sessions:
        store(session.session_key).delete()
        for user in User.objects.filter(subject=session.subject):
            session_record(action="session.end", username=user.username)
    sessions.delete()


def _free_username(claims: dict[str, Any]) -> str:
    """The provider's name for the person; never that of somebody else who is known here already."""
    wanted = str(claims.get("preferred_username") or claims.get("email") or claims["sub"])[:120]
    return wanted if not User.objects.filter(username=wanted).exists() else f"{wanted}-{claims['sub'][:8]}"


def _roles(sources: Iterable[dict[str, Any]]) -> dict[str, Role]:
    """The highest role by workspace slug, by the installation's mapping of the provider's roles and groups."""
    found: dict[str, Role] = {}
    for claims in sources:
        names = [*claims.get("roles", ()), *claims.get("groups", ()), *claims.get("realm_access", {}).get("roles", ())]
        for name in names:
            for target in settings.CONSOLE.oidc_roles.get(name, []):
                slug, _, role = target.partition(":")
                if slug not in found or Role(role).includes(found[slug]):
                    found[slug] = Role(role)
    return found


def _granted(user: User) -> dict[str, str]:
    return dict(Membership.objects.filter(user=user).values_list("workspace__slug", "role"))


def _sync_memberships(user: User, roles: dict[str, Role]) -> None:
    wanted = {slug: role.value for slug, role in roles.items()}
    if _granted(user) == wanted:
        return  # as with most bearer tokens: nothing is locked
    User.objects.select_for_update().get(pk=user.pk)
    before = _granted(user)
    Membership.objects.filter(user=user).exclude(workspace__slug__in=wanted).delete()
    for slug, role in wanted.items():
        workspace, _ = Workspace.objects.get_or_create(slug=slug, defaults={"name": slug})
        Membership.objects.update_or_create(workspace=workspace, user=user, defaults={"role": role})
    for workspace in Workspace.objects.filter(slug__in={*before, *wanted}):
        role_before, role_after = before.get(workspace.slug), wanted.get(workspace.slug)
        if role_before != role_after:
            audit_record(
                action="membership.sync",
                actor=user,
                workspace=workspace,
                before={"role": role_before},
                after={"role": role_after},
            )
