"""Where connectors' secrets are stored: sealed, in Vault if the installation has one, otherwise in PostgreSQL."""

import copy
import json
import logging
from collections.abc import Callable
from typing import Any

from django.db import transaction
from pydantic import BaseModel

from backend.apps.connectors.models import Connector, StoredSecret
from backend.apps.connectors.secrets import UnreadableSecretError, cipher
from backend.apps.connectors.vault import (
    MissingReferenceError,
    Vault,
    VaultRefusesError,
    VaultUnavailableError,
    is_reference,
    vault,
)
from backend.apps.workspaces.models import Workspace
from backend.domain.connector import RuntimeConnector, connectors
from backend.domain.errors import ConfigError
from backend.domain.masking import MASK, dotted, join_secrets, replace_at, secret_paths, split_secrets, value_at
from backend.domain.model import UnreadableConfigError
from backend.domain.registry import UnknownComponentError

log = logging.getLogger(__name__)

StoreSecrets = Callable[[Connector, dict[str, str]], None]
Reseal = Callable[[], tuple[int, list[str]]]

_resealers: list[Reseal] = []


def resealer_register(reseal: Reseal) -> None:
    """For an app that seals secrets of its own: ``secrets_reseal`` calls it too."""
    _resealers.append(reseal)


def secrets_store(connector: Connector, secrets: dict[str, str]) -> None:
    """Called within a transaction: after a rollback the former secrets stay valid, in Vault too."""
    StoredSecret.objects.update_or_create(
        connector=connector, defaults=_stored_at(connector, cipher().seal(json.dumps(secrets).encode()))
    )


class StagedSecrets:
    """The secrets of an all-or-nothing change of many connectors.

    Within its transaction they are sealed in PostgreSQL, which a rollback clears. Only ``settle`` writes to
    Vault, once everything else was accepted.
    """

    def __init__(self) -> None:
        self._connectors: dict[Any, Connector] = {}

    def store(self, connector: Connector, secrets: dict[str, str]) -> None:
        """In place of ``secrets_store``."""
        sealed = cipher().seal(json.dumps(secrets).encode())
        StoredSecret.objects.update_or_create(connector=connector, defaults={"sealed": sealed, "vault_version": None})
        self._connectors[connector.pk] = connector

    def settle(self) -> None:
        """Moves them to their final store at the end of the transaction. Versions written to Vault before an
        error are removed. Raises VaultUnavailableError."""
        target = vault()
        if target is None:
            return
        written: dict[str, int] = {}
        try:
            for stored in StoredSecret.objects.filter(connector__in=self._connectors.values()):
                name = str(stored.connector_id)
                written[name] = target.write(name, _sealed(stored))
                StoredSecret.objects.filter(pk=stored.pk).update(sealed=None, vault_version=written[name])
        except Exception:
            for name, version in written.items():
                _remove_version(target, name, version)
            raise


def secrets_load(connector: Connector) -> dict[str, str]:
    """The secrets by path, with references unresolved. Raises UnreadableSecretError, VaultUnavailableError."""
    stored = StoredSecret.objects.filter(connector=connector).first()
    if stored is None:
        return {}
    secrets: dict[str, str] = json.loads(cipher().open(_sealed(stored)))
    return secrets


def secrets_load_readable(connector: Connector) -> dict[str, str]:
    """Like ``secrets_load``, but empty when they cannot be read: each must then be entered again."""
    try:
        return secrets_load(connector)
    except UnreadableSecretError:
        return {}


def connection_load(connector: Connector) -> tuple[dict[str, Any], dict[str, str]]:
    """The stored connection upgraded to the current schema, masked, and its readable secrets by path."""
    secrets = secrets_load_readable(connector)
    try:
        model = connectors.get(connector.type).connection_model
        if connector.schema_version == model.schema_version:
            return connector.connection, secrets
        present = model.upgraded(join_secrets(connector.connection, secrets), connector.schema_version)
    except (UnknownComponentError, UnreadableConfigError):
        return connector.connection, secrets
    public, secrets = split_secrets(model, present)
    return public, {path: secret for path, secret in secrets.items() if secret != MASK}


def secrets_delete(connector: Connector) -> None:
    """Deletes the connector's secrets from Vault after commit. If Vault is unavailable they stay, sealed and unused."""
    name, target = str(connector.pk), vault()
    if target is None:
        return

    def delete() -> None:
        try:
            target.delete(name)
        except VaultUnavailableError as error:
            log.warning("The secrets of the deleted connector %s stay in Vault: %s", name, error)

    transaction.on_commit(delete)


def secrets_reseal() -> tuple[int, list[str]]:
    """Seals every secret with the current key and moves it to the configured store, each in its own
    transaction, so that the command may be interrupted and run again.

    Returns how many were resealed, and the names of those that cannot be read: of connectors, and of secrets of
    their own.
    """
    count, unreadable = 0, []
    for reseal in _resealers:
        others, names = reseal()
        count += others
        unreadable += names
    for pk in StoredSecret.objects.values_list("pk", flat=True):
        with transaction.atomic():
            stored = StoredSecret.objects.select_for_update().select_related("connector").filter(pk=pk).first()
            if stored is None:
                continue
            try:
                sealed = _sealed(stored)
                if cipher().is_current(sealed) and (stored.sealed is None) == (vault() is not None):
                    continue
                location = _stored_at(stored.connector, cipher().seal(cipher().open(sealed)))
            except UnreadableSecretError:
                unreadable.append(stored.connector.name)
                continue
            StoredSecret.objects.filter(pk=pk).update(**location)
            count += 1
    return count, unreadable


def connection_with_secrets(connector: Connector) -> dict[str, Any]:
    """For the data plane only. Raises UnreadableSecretError, which names the connector, and
    VaultUnavailableError."""
    try:
        model = connectors.get(connector.type).connection_model
        stored = join_secrets(connector.connection, secrets_load(connector))
        return with_references(connector.workspace, model, model.upgraded(stored, connector.schema_version))
    except (UnknownComponentError, UnreadableConfigError) as error:
        raise UnreadableSecretError(f"Connector {connector.name!r}: {error}") from None
    except UnreadableSecretError as error:
        raise UnreadableSecretError(f"Connector {connector.name!r}: {error} Save its secrets again.") from None
    except (ConfigError, VaultRefusesError) as error:
        raise UnreadableSecretError(f"Connector {connector.name!r}: {error}") from None


def runtime_connector(connector: Connector) -> RuntimeConnector:
    """As the data plane has it; with an error in place of a connection that cannot be read."""
    try:
        return RuntimeConnector(type=connector.type, connection=connection_with_secrets(connector))
    except (UnreadableSecretError, VaultUnavailableError) as error:
        return RuntimeConnector(type=connector.type, connection={}, error=str(error))


def with_references(workspace: Workspace, model: type[BaseModel], connection: dict[str, Any]) -> dict[str, Any]:
    """The connection with its references to Vault resolved. Raises ConfigError, VaultUnavailableError."""
    resolved = copy.deepcopy(connection)
    errors: dict[str, list[str]] = {}
    for path in secret_paths(model, connection):
        reference = value_at(connection, path)
        if not is_reference(reference):
            continue
        try:
            replace_at(resolved, path, _referenced(workspace, reference))
        except (MissingReferenceError, VaultRefusesError) as error:
            errors[f"connection.{dotted(path)}"] = [str(error)]
    if errors:
        raise ConfigError(errors)
    return resolved


def _remove_version(target: Vault, name: str, version: int) -> None:
    try:
        if version == 1:
            target.delete(name)
        else:
            target.destroy(name, version)
    except VaultUnavailableError as error:
        log.warning("Vault keeps version %d of connector %s's secrets, sealed and unused: %s", version, name, error)


def _referenced(workspace: Workspace, reference: str) -> str:
    target = vault()
    if target is None:
        raise MissingReferenceError(
            "No Vault is set for this installation (HEADRACE_VAULT_URL): enter the secret itself."
        )
    return target.resolve(workspace.slug, reference)


def _stored_at(connector: Connector, sealed: bytes) -> dict[str, Any]:
    """Stores the sealed secret; returns the fields of StoredSecret that locate it."""
    target = vault()
    if target is None:
        return {"sealed": sealed, "vault_version": None}
    return {"sealed": None, "vault_version": target.write(str(connector.pk), sealed)}


def _sealed(stored: StoredSecret) -> bytes:
    if stored.sealed is not None:
        return bytes(stored.sealed)
    target = vault()
    if target is None:
        raise UnreadableSecretError("The stored secret is in Vault, and HEADRACE_VAULT_URL is not set.")
    assert stored.vault_version is not None
    try:
        return target.read(str(stored.connector_id), stored.vault_version)
    except MissingReferenceError as error:
        raise UnreadableSecretError(str(error)) from None
