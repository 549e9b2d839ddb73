"""Workspaces and API keys as the gateway's accounts."""

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from uuid import UUID

from django.conf import settings

from backend.apps.read_gateway.threads import stored
from backend.apps.workspaces.models import ApiKey, Scope
from backend.apps.workspaces.selectors import key_by_text, valid_keys
from backend.apps.workspaces.services import scram_salt
from backend.kafka.gateway.ports import Account
from backend.kafka.server.scram import Verifier


class DjangoAccounts:
    """The Accounts of the gateway."""

    async def by_key(self, user: str, key: str) -> Account | None:
        return await stored(_by_key, user, key)

    async def verifiers(self, user: str, mechanism: str) -> tuple[bytes, Sequence[tuple[Account, Verifier]]]:
        return await stored(_verifiers, user, mechanism)

    async def revoked(self, keys: Iterable[UUID]) -> set[UUID]:
        return await stored(_revoked, set(keys))


def _account(key: ApiKey) -> Account:
    return Account(key.id, key.workspace_id)


def _by_key(user: str, text: str) -> Account | None:
    key = key_by_text(text)
    if key is None or key.workspace.slug != user or Scope.READ not in key.scopes:
        return None
    return _account(key)


def _verifiers(user: str, mechanism: str) -> tuple[bytes, Sequence[tuple[Account, Verifier]]]:
    keys = list(valid_keys().filter(workspace__slug=user, scopes__contains=[Scope.READ]).exclude(scram={}))
    if not keys:
        # A workspace that does not exist is answered like one with other keys.
        secret = settings.SECRET_KEY.encode()
        return hmac.digest(secret, f"scram salt of {user}".encode(), hashlib.sha256)[:16], ()
    verifiers = [(_account(key), Verifier(*map(bytes.fromhex, key.scram[mechanism]))) for key in keys]
    return scram_salt(keys[0].workspace_id), verifiers


def _revoked(keys: set[UUID]) -> set[UUID]:
    valid = valid_keys().filter(id__in=keys, scopes__contains=[Scope.READ]).values_list("id", flat=True)
    return keys - set(valid)
