"""Secrets of Connect SQL, sealed at rest and resolved on the server only."""

import re

from django.db import transaction

from backend.apps.audit.services import audit_record
from backend.apps.connectors.secrets import UnreadableSecretError, cipher
from backend.apps.sql.errors import SqlError
from backend.apps.sql.models import SqlSecret
from backend.apps.workspaces.models import User, Workspace

_REFERENCE = re.compile(r"\$\{secret:([^}]*)\}")
_LONGEST_NAME = 100
_LONGEST_SECRET = 64 * 1024
_LONGEST_RESOLVED = 1_000_000


def secret_create(*, workspace: Workspace, actor: User, name: str, value: str, replace: bool) -> None:
    """Raises SqlError when there is one of this name, unless it is to be replaced."""
    if not name.strip() or len(name) > _LONGEST_NAME or "}" in name:
        raise SqlError(f"The name of a secret has 1 to {_LONGEST_NAME} characters, and no closing brace.")
    if len(value) > _LONGEST_SECRET:
        raise SqlError(f"A secret has at most {_LONGEST_SECRET:,} characters.")
    with transaction.atomic():
        fields = {"sealed": cipher().seal(value.encode()), "created_by": actor}
        if replace:
            secret, _ = SqlSecret.objects.update_or_create(workspace=workspace, name=name, defaults=fields)
        else:
            secret, created = SqlSecret.objects.get_or_create(workspace=workspace, name=name, defaults=fields)
            if not created:
                raise SqlError(f"There is a secret {name} already: CREATE OR REPLACE SECRET replaces it.", status=409)
        audit_record(
            action="sql_secret.create", actor=actor, workspace=workspace, target=secret, secrets_changed=["value"]
        )


def secret_delete(*, workspace: Workspace, actor: User, name: str) -> bool:
    """Whether there was one. What was made with it keeps its copy."""
    with transaction.atomic():
        secret = SqlSecret.objects.filter(workspace=workspace, name=name).first()
        if secret is None:
            return False
        audit_record(action="sql_secret.delete", actor=actor, workspace=workspace, target=secret)
        secret.delete()
    return True


def secret_names(workspace: Workspace) -> list[str]:
    return list(SqlSecret.objects.filter(workspace=workspace).values_list("name", flat=True))


def resolved(workspace: Workspace, properties: dict[str, str]) -> dict[str, str]:
    """The properties with secrets in place of ``${secret:name}``. Raises SqlError, which names every property whose
    secret there is none of."""
    names = {name for value in properties.values() for name in _REFERENCE.findall(value)}
    if not names:
        return properties
    stored = {secret.name: secret for secret in SqlSecret.objects.filter(workspace=workspace, name__in=names)}
    errors: dict[str, list[str]] = {}
    values: dict[str, str] = {}
    for name in names:
        try:
            values[name] = cipher().open(bytes(stored[name].sealed)).decode()
        except KeyError:
            continue
        except UnreadableSecretError as error:
            raise SqlError(f"The secret {name} cannot be read: {error} Create it again.", status=409) from None
    for key, value in properties.items():
        if missing := [name for name in _REFERENCE.findall(value) if name not in values]:
            errors[key] = [f"There is no secret {', '.join(missing)}: make it with CREATE SECRET."]
    if errors:
        raise SqlError("A secret does not exist.", properties=errors)
    if (
        sum(len(values[name]) for value in properties.values() for name in _REFERENCE.findall(value))
        > _LONGEST_RESOLVED
    ):
        raise SqlError(f"With their secrets, the properties exceed {_LONGEST_RESOLVED:,} characters.")
    return {key: _REFERENCE.sub(lambda match: values[match[1]], value) for key, value in properties.items()}


def secrets_reseal() -> tuple[int, list[str]]:
    """As ``connectors.secret_store.secrets_reseal``, for the secrets of statements."""
    count, unreadable = 0, []
    for pk in SqlSecret.objects.values_list("pk", flat=True):
        with transaction.atomic():
            secret = SqlSecret.objects.select_for_update().filter(pk=pk).first()
            if secret is None or cipher().is_current(bytes(secret.sealed)):
                continue
            try:
                plain = cipher().open(bytes(secret.sealed))
            except UnreadableSecretError:
                unreadable.append(f"SQL secret {secret.name}")
                continue
            SqlSecret.objects.filter(pk=pk).update(sealed=cipher().seal(plain))
            count += 1
    return count, unreadable
