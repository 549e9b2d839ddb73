"""Queries on connectors and their types."""

import logging
from collections.abc import Iterable
from typing import Any

from django.db.models import QuerySet

from backend.apps.connectors.models import Connector
from backend.apps.workspaces.models import Workspace
from backend.domain import connector as domain
from backend.domain.connector import connectors
from backend.domain.errors import error_sentence
from backend.domain.model import UnreadableConfigError, json_schema, label
from backend.domain.registry import UnknownComponentError

log = logging.getLogger(__name__)


def connectors_of(workspace: Workspace) -> QuerySet[Connector]:
    return Connector.objects.filter(workspace=workspace)


def connector_revisions(connector_ids: Iterable[str] | None = None) -> dict[str, Any]:
    """By id, for all connectors or those of these: equal as long as the connection and its secrets are the same."""
    connectors = Connector.objects.all() if connector_ids is None else Connector.objects.filter(pk__in=connector_ids)
    return {str(pk): changed_at for pk, changed_at in connectors.values_list("pk", "updated_at").iterator()}


def connector_types() -> list[dict[str, Any]]:
    """Every installed type with the JSON Schemas that forms are generated from; secrets are ``writeOnly``. One that is
    broken is unavailable, and affects no other."""
    types = [_described(cls) for cls in connectors]
    types += [_broken(name, reason) for name, reason in connectors.broken.items()]
    return sorted(types, key=lambda described: str(described["type"]))


def _described(cls: type[domain.Connector]) -> dict[str, Any]:
    try:
        return {
            "type": cls.type,
            "title": cls.title,
            "description": cls.description(),
            "unavailable": cls.unavailable(),
            "connection_schema": json_schema(cls.connection_model),
            "capabilities": {
                capability.name: {"options_schema": json_schema(capability.options_model)}
                for capability in cls.capabilities
            },
        }
    except Exception as error:
        log.exception("The connector type %s cannot be described.", cls.type)
        return _broken(cls.type, f"The connector type cannot be described: {error_sentence(error)}")


def _broken(type: str, reason: str) -> dict[str, Any]:
    return {
        "type": type,
        "title": label(type),
        "description": "",
        "unavailable": reason,
        "connection_schema": {"type": "object", "properties": {}},
        "capabilities": {},
    }


def connection_shown(connector: Connector) -> dict[str, Any]:
    """The connection upgraded to the current schema, masked; as stored if it can no longer be upgraded."""
    try:
        return connectors.get(connector.type).connection_model.upgraded(connector.connection, connector.schema_version)
    except (UnknownComponentError, UnreadableConfigError):
        return dict(connector.connection)


def connector_failure(connector: Connector) -> str:
    """Why a stored connector cannot be used, in a sentence; empty when it can."""
    try:
        type = connectors.get(connector.type)
        type.connection_model.upgraded(connector.connection, connector.schema_version)
    except (UnknownComponentError, UnreadableConfigError) as error:
        return str(error)
    return type.unavailable()
