"""Questions about connectors and their types."""

from typing import Any

from django.db.models import QuerySet

from backend.apps.connectors.models import Connector
from backend.apps.workspaces.models import Workspace
from backend.domain.connector import connectors


def connectors_of(workspace: Workspace) -> QuerySet[Connector]:
    return Connector.objects.filter(workspace=workspace)


def connector_types() -> list[dict[str, Any]]:
    """Every installed type with the JSON Schemas that forms are made of; secrets are ``writeOnly``."""
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
