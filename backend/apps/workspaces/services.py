"""Changes to workspaces, members and API keys."""

import hashlib
import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from backend.apps.audit.services import audit_record
from backend.apps.workspaces.models import ApiKey, Membership, Role, Scope, User, Workspace
from backend.domain.errors import ConfigError, ConflictError
from backend.kafka.server.scram import DIGESTS, Verifier
from backend.manager_api import snapshot
from backend.manager_api.snapshot import IngestKey

_KEY_BYTES = 24


def workspace_create(*, slug: str, name: str, admin: User) -> Workspace:
    """A new workspace with its first admin."""
    with transaction.atomic():
        workspace = Workspace.objects.create(slug=slug, name=name)
        Membership.objects.create(workspace=workspace, user=admin, role=Role.ADMIN)
        audit_record(action="workspace.create", actor=admin, workspace=workspace, target=workspace)
    return workspace


def first_account_ensure(*, password: str) -> None:
    """Creates ``admin``, who administers the installation, and a workspace, unless there is an account."""
    with transaction.atomic():
        if not User.objects.exists():
            admin = User.objects.create_superuser("admin", password=password)
            workspace_create(slug="main", name="Main", admin=admin)


def member_add(*, workspace: Workspace, actor: User, username: str, role: str) -> Membership:
    """Raises ConfigError when there is no such user, or they are already a member."""
    user = User.objects.filter(username=username, is_active=True).first()
    if user is None:
        problem = "No account has this user name. Local ones are created in the admin site, others at first sign-in."
        raise ConfigError({"username": [problem]})
    if Membership.objects.filter(workspace=workspace, user=user).exists():
        raise ConfigError({"username": [f"{username} is already a member."]})
    with transaction.atomic():
        member = Membership.objects.create(workspace=workspace, user=user, role=role)
        _audit_member("add", member, actor, after={"role": role})
    return member


def member_change(*, member: Membership, actor: User, role: str) -> Membership:
    """Raises ConflictError when the identity provider determines the role, or no admin would be left."""
    with transaction.atomic():
        _check_may_change(member, stays_admin=role == Role.ADMIN)
        before, member.role = member.role, role
        member.save(update_fields=["role"])
        _audit_member("change", member, actor, before={"role": before}, after={"role": role})
    return member


def member_remove(*, member: Membership, actor: User) -> None:
    """Raises ConflictError as ``member_change`` does."""
    with transaction.atomic():
        _check_may_change(member, stays_admin=False)
        _audit_member("remove", member, actor, before={"role": member.role})
        member.delete()


def _check_may_change(member: Membership, *, stays_admin: bool) -> None:
    if member.user.subject is not None:
        raise ConflictError(
            f"The identity provider's roles and groups decide what {member.user} may do; change them there."
        )
    # Locked, so that two admins cannot remove each other at the same time.
    admins = list(Membership.objects.select_for_update().filter(workspace=member.workspace, role=Role.ADMIN))
    if admins == [member] and not stays_admin:
        raise ConflictError(f"{member.user} is the only admin of this workspace; make another member an admin first.")


def _audit_member(action: str, member: Membership, actor: User, **changed: Any) -> None:
    audit_record(action=f"membership.{action}", actor=actor, workspace=member.workspace, target=member.user, **changed)


def key_hash(key: str) -> str:
    """Keys are random and long, so one round of SHA-256 is enough to store them by."""
    return hashlib.sha256(key.encode()).hexdigest()


def scram_salt(workspace_id: UUID) -> bytes:
    """The salt of a workspace's SCRAM verifiers. All its keys share it, because a client says only the workspace's name
    before it is told the salt; a salt is no secret."""
    return hashlib.sha256(b"headrace scram salt " + workspace_id.bytes).digest()[:16]


def _scram_verifiers(key: str, salt: bytes) -> dict[str, list[str]]:
    verifiers = {mechanism: Verifier.of(mechanism, key, salt) for mechanism in DIGESTS}
    return {mechanism: [v.stored_key.hex(), v.server_key.hex()] for mechanism, v in verifiers.items()}


def api_key_create(
    *, workspace: Workspace, actor: User, name: str, scopes: Sequence[str], expires_at: datetime | None = None
) -> tuple[ApiKey, str]:
    """A new key and its text, which cannot be retrieved later."""
    text = f"hr_{secrets.token_urlsafe(_KEY_BYTES)}"
    with transaction.atomic():
        key = ApiKey.objects.create(
            workspace=workspace,
            name=name,
            prefix=text[:9],
            hash=key_hash(text),
            scram=_scram_verifiers(text, scram_salt(workspace.id)),
            scopes=list(scopes),
            created_by=actor,
            expires_at=expires_at,
        )
        after = {"prefix": key.prefix, "scopes": key.scopes, "expires_at": expires_at and expires_at.isoformat()}
        audit_record(action="api_key.create", actor=actor, workspace=workspace, target=key, after=after)
        transaction.on_commit(lambda: api_key_announce(key=key))
    return key, text


def api_key_revoke(*, key: ApiKey, actor: User) -> None:
    """The key stops working at once, or within a minute while Redis is unavailable."""
    with transaction.atomic():
        key.revoked_at = timezone.now()
        key.save(update_fields=["revoked_at"])
        audit_record(action="api_key.revoke", actor=actor, workspace=key.workspace, target=key)
        transaction.on_commit(lambda: api_key_announce(key=key))


def ingest_key(key: ApiKey) -> IngestKey | None:
    """The key as the data plane knows it, or None when it may not post messages."""
    if key.revoked_at is not None or Scope.INGEST not in key.scopes:
        return None
    return IngestKey(key.hash, key.workspace_id, int(key.expires_at.timestamp()) if key.expires_at else 0)


def api_key_announce(*, key: ApiKey) -> None:
    """Writes the key's current state to the data plane's snapshot, and announces the change."""
    usable = ingest_key(key)
    snapshot.announce("key", key.hash, usable.to_json() if usable else None)
