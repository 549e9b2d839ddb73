"""Users from the identity provider, and their roles in workspaces."""

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
    """The user that the claims identify, created at the first sign-in. Each time, memberships follow the claims."""
    claims = {name: value for source in reversed(sources) for name, value in source.items()}
    with transaction.atomic():
        user = User.objects.filter(subject=claims["sub"]).first()
        if user is None:
            user = User.objects.create_user(_free_username(claims), email=claims.get("email"), subject=claims["sub"])
        _sync_memberships(user, _roles(sources))
    return user


def session_record(*, action: str, username: str) -> None:
    """Writes a sign-in, rejected or not, or a sign-out to the audit log of each of the user's workspaces."""
    workspaces: list[Workspace | None] = list(Workspace.objects.filter(membership__user__username=username))
    for workspace in workspaces or [None]:
        audit_record(action=action, actor=username[:200], workspace=workspace)


def provider_sessions_end(sessions: QuerySet[ProviderSession]) -> None:
    """Ends the browser sessions of these sessions, which the provider has ended."""
    store = import_module(settings.SESSION_ENGINE).SessionStore
    for session in sessions:
        store(session.session_key).delete()
        for user in User.objects.filter(subject=session.subject):
            session_record(action="session.end", username=user.username)
    sessions.delete()


def _free_username(claims: dict[str, Any]) -> str:
    """The provider's user name for the person; never one that another user already has."""
    name = str(claims.get("preferred_username") or claims.get("email") or claims["sub"])[:120]
    return name if not User.objects.filter(username=name).exists() else f"{name}-{claims['sub'][:8]}"


def _roles(sources: Iterable[dict[str, Any]]) -> dict[str, Role]:
    """The highest role by workspace slug, from the installation's mapping of the provider's roles and groups."""
    roles: dict[str, Role] = {}
    for claims in sources:
        names = [*claims.get("roles", ()), *claims.get("groups", ()), *claims.get("realm_access", {}).get("roles", ())]
        for name in names:
            for target in settings.CONSOLE.oidc_roles.get(name, []):
                slug, _, role = target.partition(":")
                if slug not in roles or Role(role).includes(roles[slug]):
                    roles[slug] = Role(role)
    return roles


def _granted(user: User) -> dict[str, str]:
    return dict(Membership.objects.filter(user=user).values_list("workspace__slug", "role"))


def _sync_memberships(user: User, roles: dict[str, Role]) -> None:
    expected = {slug: role.value for slug, role in roles.items()}
    if _granted(user) == expected:
        return  # the usual case with bearer tokens: no lock is taken
    User.objects.select_for_update().get(pk=user.pk)
    before = _granted(user)
    Membership.objects.filter(user=user).exclude(workspace__slug__in=expected).delete()
    for slug, role in expected.items():
        workspace, _ = Workspace.objects.get_or_create(slug=slug, defaults={"name": slug})
        Membership.objects.update_or_create(workspace=workspace, user=user, defaults={"role": role})
    for workspace in Workspace.objects.filter(slug__in={*before, *expected}):
        role_before, role_after = before.get(workspace.slug), expected.get(workspace.slug)
        if role_before != role_after:
            audit_record(
                action="membership.sync",
                actor=user,
                workspace=workspace,
                before={"role": role_before},
                after={"role": role_after},
            )
