"""Changes to connectors."""

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import transaction
from pydantic import ValidationError

from backend.apps.audit.services import audit_record
from backend.apps.connectors.dependents import dependents_of
from backend.apps.connectors.models import Connector
from backend.apps.connectors.secret_store import (
    StoreSecrets,
    connection_load,
    secrets_delete,
    secrets_store,
    with_references,
)
from backend.apps.connectors.signals import connector_changed
from backend.apps.workspaces.models import User, Workspace
from backend.domain import connector as domain
from backend.domain.capabilities import Connection
from backend.domain.errors import ConfigError, ConflictError
from backend.domain.masking import (
    MASK,
    dotted,
    dotted_pointer,
    join_secrets,
    keep_secrets,
    secret_paths,
    split_secrets,
    value_at,
)
from backend.domain.registry import UnknownComponentError
from backend.manager_api.snapshot import announce_connector
from backend.network.outbound import ForbiddenAddressError, outbound_policy
from backend.network.threads import run_with_limit

log = logging.getLogger(__name__)

StoredConnection = tuple[dict[str, Any], dict[str, str]]
"""A stored connection: masked, and its secrets by path."""
_NOTHING_STORED: StoredConnection = ({}, {})


def connector_type(name: str) -> type[domain.Connector]:
    """Raises ConfigError at the field ``type``."""
    try:
        return domain.connectors.get(name)
    except UnknownComponentError as error:
        raise ConfigError({"type": [str(error)]}) from None


def connector_create(
    *,
    workspace: Workspace,
    actor: User,
    name: str,
    type: str,
    connection: dict[str, Any],
    store: StoreSecrets = secrets_store,
) -> Connector:
    """Raises ConfigError when the connection does not fit its type; nothing is saved then."""
    public, secrets = _validated(workspace, type, connection)
    _check_name_is_free(workspace, name)
    with transaction.atomic():
        connector = Connector.objects.create(
            workspace=workspace,
            name=name,
            type=type,
            connection=public,
            created_by=actor,
            schema_version=connector_type(type).connection_model.schema_version,
        )
        store(connector, secrets)
        audit_record(
            action="connector.create",
            actor=actor,
            workspace=workspace,
            target=connector,
            after=_audited(connector),
            secrets_changed=_changed_secrets({}, secrets),
        )
    return connector


def connector_update(
    *,
    connector: Connector,
    actor: User,
    name: str,
    connection: dict[str, Any],
    store: StoreSecrets = secrets_store,
) -> Connector:
    """A mask sent back keeps the stored secret. Published pipelines use the change at once."""
    previous = connection_load(connector)
    public, secrets = _validated(connector.workspace, connector.type, connection, previous)
    _check_name_is_free(connector.workspace, name, but=connector)
    before = _audited(connector)
    with transaction.atomic():
        connector.name = name
        connector.connection = public
        connector.schema_version = connector_type(connector.type).connection_model.schema_version
        connector.save(update_fields=["name", "connection", "schema_version", "updated_at"])
        store(connector, secrets)
        audit_record(
            action="connector.update",
            actor=actor,
            workspace=connector.workspace,
            target=connector,
            before=before,
            after=_audited(connector),
            secrets_changed=_changed_secrets(previous[1], secrets),
        )
        connector_changed.send(sender=Connector, connector=connector)
        transaction.on_commit(lambda: announce_connector(connector.pk))
    return connector


def connector_delete(*, connector: Connector, actor: User) -> None:
    """Raises ConflictError while anything uses the connector."""
    if used_by := dependents_of(connector):
        raise ConflictError(
            f"The connector is used by: {', '.join(one.name for one in used_by)}. Take it out of these first."
        )
    with transaction.atomic():
        audit_record(
            action="connector.delete",
            actor=actor,
            workspace=connector.workspace,
            target=connector,
            before=_audited(connector),
        )
        secrets_delete(connector)
        connector.delete()


def connection_validate(
    *, workspace: Workspace, type: str, connection: dict[str, Any], stored: Connector | None = None
) -> None:
    """Raises ConfigError when the connection does not fit its type. With ``stored``, masks stand for its secrets."""
    _validated(workspace, type, connection, _stored_connection(stored))


def connector_check(
    *, workspace: Workspace, type: str, connection: dict[str, Any], stored: Connector | None = None
) -> str:
    """Really connects, and returns a sentence on what was reached.

    With ``stored``, masks stand for its secrets. Raises ConfigError at the field that caused the failure, within
    seconds whatever the connector does.
    """
    cls = connector_type(type)
    model, _ = _checked(workspace, cls, connection, _stored_connection(stored))
    try:
        try:
            check = domain.check_connection(cls, model)
            return run_with_limit(check, domain.CHECK_SECONDS, f"The check of a connector of type {type}")
        except TimeoutError:
            raise domain.no_answer(model) from None
    except domain.CheckFailedError as error:
        raise ConfigError({f"connection.{error.field}" if error.field else "connection": [str(error)]}) from None


def _stored_connection(connector: Connector | None) -> StoredConnection:
    return connection_load(connector) if connector is not None else _NOTHING_STORED


def _audited(connector: Connector) -> dict[str, Any]:
    return {"name": connector.name, "type": connector.type, "connection": connector.connection}


def _changed_secrets(before: dict[str, str], after: dict[str, str]) -> list[str]:
    paths = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    return [f"connection.{dotted_pointer(path)}" for path in paths]


def _validated(
    workspace: Workspace, type: str, connection: dict[str, Any], previous: StoredConnection = _NOTHING_STORED
) -> tuple[dict[str, Any], dict[str, str]]:
    """The connection, masked, and its secrets by path. Raises ConfigError."""
    cls = connector_type(type)
    _, data = _checked(workspace, cls, connection, previous)
    return split_secrets(cls.connection_model, data)


def _checked(
    workspace: Workspace, cls: type[domain.Connector], connection: dict[str, Any], previous: StoredConnection
) -> tuple[Connection, dict[str, Any]]:
    """The connection with masks replaced by the stored secrets: as its model, and as data. Raises ConfigError."""
    with _faults_answered(cls):
        data = keep_secrets(cls.connection_model, connection, *previous)
        model = _model(workspace, cls, data)
        _check_hosts(model)
        _check_connectors(workspace, model)
        _check_secrets_stay(model, connection, previous)
        return model, data


@contextmanager
def _faults_answered(cls: type[domain.Connector]) -> Iterator[None]:
    """Turns what the connector's own code raises, whatever it is, into a ConfigError without any values."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        # Its message may hold secrets.
        trace = "".join(traceback.format_tb(error.__traceback__))
        log.error("The connector type %s fails: %s\n%s", cls.type, type(error).__name__, trace)
        sentence = (
            f"The connector type {cls.type} fails with this connection ({type(error).__name__}), which is a fault of "
            "its own; the server's log says where."
        )
        raise ConfigError({"connection": [sentence]}) from None


def _check_hosts(model: Connection) -> None:
    errors: dict[str, list[str]] = {}
    policy = outbound_policy()
    for check, named in ((policy.check_host, model.hosts()), (policy.check_far_host, model.far_hosts())):
        for field, host in ((field, host) for field, hosts in named.items() for host in hosts):
            try:
                check(host)
            except ForbiddenAddressError as error:
                errors.setdefault(f"connection.{field}", []).append(str(error))
    if errors:
        raise ConfigError(errors)


def _check_connectors(workspace: Workspace, model: Connection) -> None:
    errors = {
        f"connection.{field}": [f"This workspace has no connector {name!r} of the type {type}: create it first."]
        for field, (type, name) in model.connectors().items()
        if not Connector.objects.filter(workspace=workspace, type=type, name=name).exists()
    }
    if errors:
        raise ConfigError(errors)


def _check_secrets_stay(model: Connection, connection: dict[str, Any], previous: StoredConnection) -> None:
    """A stored secret is only sent to the host it was entered for: otherwise anyone who may edit the address
    could have it sent to a system of their own."""
    cls = type(model)
    masks = [path for path in secret_paths(cls, connection) if value_at(connection, path) == MASK]
    if not masks:
        return
    try:
        former = cls.model_validate(join_secrets(*previous))
        same = (former.hosts(), former.far_hosts()) == (model.hosts(), model.far_hosts())
    except ValidationError:
        same = False
    if not same:
        sentence = ["The address was changed: enter the secret again, since it was meant for the former one."]
        raise ConfigError({f"connection.{dotted(path)}": sentence for path in masks})


def _model(workspace: Workspace, cls: type[domain.Connector], data: dict[str, Any]) -> Connection:
    left = [path for path in secret_paths(cls.connection_model, data) if value_at(data, path) == MASK]
    if left:
        sentence = ["No stored secret belongs here: enter it again."]
        raise ConfigError({f"connection.{dotted(path)}": sentence for path in left})
    try:
        return cls.connection_model.model_validate(with_references(workspace, cls.connection_model, data))
    except ValidationError as error:
        raise ConfigError.of(error, data, "connection") from None


def _check_name_is_free(workspace: Workspace, name: str, but: Connector | None = None) -> None:
    others = Connector.objects.filter(workspace=workspace, name=name)
    if but is not None:
        others = others.exclude(pk=but.pk)
    if others.exists():
        raise ConfigError({"name": ["Another connector of this workspace has this name."]})
