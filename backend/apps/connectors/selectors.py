"""Queries on connectors and their types."""

from collections.abc import Iterable
from typing import Any

from django.db.models import QuerySet

from backend.apps.connectors.models import Connector
from backend.apps.workspaces.models import Workspace
from backend.domain.connector import connectors
from backend.domain.model import UnreadableConfigError
from backend.domain.registry import UnknownComponentError


def connectors_of(workspace: Workspace) -> QuerySet[Connector]:
    return Connector.objects.filter(workspace=workspace)


def connector_revisions(connector_ids: Iterable[str] | None = None) -> dict[str, Any]:
    """By id, for all connectors or those of these: equal as long as the connection and its secrets are the same."""
    connectors = Connector.objects.all() if connector_ids is None else Connector.objects.filter(pk__in=connector_ids)
    return {str(pk): changed_at for pk, changed_at in connectors.values_list("pk", "updated_at").iterator()}


def connector_types() -> list[dict[str, Any]]:
    """Every installed type with the JSON Schemas that forms are generated from; secrets are ``writeOnly``."""
    return [
        {
            "type": cls.type,
            "title": cls.title,
            "description": cls.description(),
            "unavailable": cls.unavailable(),
            "connection_schema": cls.connection_model.model_json_schema(),
            "capabilities": {
                capability.name: {"options_schema": capability.options_model.model_json_schema()}
                for capability in cls.capabilities
            },
        }
        for cls in connectors
    ]


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
