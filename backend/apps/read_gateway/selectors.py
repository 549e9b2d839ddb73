"""Which collections the gateway serves."""

import logging
from collections.abc import Sequence
from functools import lru_cache
from uuid import UUID

from backend.apps.collections.models import WrittenCollection
from backend.apps.collections.selectors import collection_store, topic_name
from backend.apps.connectors.models import Connector
from backend.apps.read_gateway.schemas import parsed, versions_of
from backend.apps.read_gateway.threads import stored
from backend.connectors.collection import Collection as CollectionConnector
from backend.connectors.collection import CollectionConnection
from backend.domain import json
from backend.domain.model import UnreadableConfigError
from backend.kafka.gateway.delta_storage import Placed
from backend.kafka.gateway.ports import Collection, StorageError, StoreError
from backend.kafka.gateway.registry import RegisteredSchema
from backend.kafka.gateway.values import Values

log = logging.getLogger(__name__)

_AVRO = "avro"


def _placed() -> Sequence[Placed]:
    by_topic: dict[tuple[UUID, str], Placed] = {}
    connectors = _collections()
    written = set(WrittenCollection.objects.values_list("collection", flat=True))
    schemas = versions_of([connector for connector in connectors if _is_avro(connector)])
    for connector in connectors:
        connection = _connection(json.dumps(connector.connection), connector.schema_version)
        if connection is None:
            continue
        deletions = connection.deletions
        values = Values(deletions, tuple(map(parsed, schemas.get(connector.id, ()))))
        collection = Collection(
            id=connector.id,
            workspace=connector.workspace_id,
            name=topic_name(connector),
            partitions=connection.partitions,
            form=f"{deletions} {[schema.id for schema in values.schemas]}",
        )
        location = collection_store().location(str(connector.workspace_id), str(connector.id))
        placed = Placed(collection, location, values, written=connector.id in written)
        by_topic.setdefault((collection.workspace, collection.name), placed)
    return list(by_topic.values())


@lru_cache(maxsize=10_000)
def _connection(stored: bytes, version: int) -> CollectionConnection | None:
    """None for one that this release cannot read: it is not served, and the others are."""
    try:
        return CollectionConnection.load_stored(json.loads(stored), version)
    except UnreadableConfigError as error:
        log.warning("A collection is not served: %s", error)
        return None


def _collections() -> list[Connector]:
    """All collections. One whose name is legal comes before one that only becomes the same."""
    connectors = Connector.objects.filter(type=CollectionConnector.type).order_by("created_at")
    return sorted(connectors, key=lambda connector: topic_name(connector) != connector.name)


def _is_avro(connector: Connector) -> bool:
    return connector.connection.get("values") == _AVRO and bool(connector.connection.get("avro_schema"))


def _registered(workspace: UUID) -> Sequence[RegisteredSchema]:
    connectors = [connector for connector in _collections() if connector.workspace_id == workspace]
    names = {connector.id: topic_name(connector) for connector in connectors if _is_avro(connector)}
    versions = versions_of([connector for connector in connectors if connector.id in names])
    schemas = [
        RegisteredSchema(row.id, names[row.collection], row.version, row.schema)
        for rows in versions.values()
        for row in rows
    ]
    return sorted(schemas, key=lambda schema: (schema.subject, schema.version))


class CollectionSchemas:
    """The Schemas of the gateway's registry."""

    async def of(self, workspace: UUID) -> Sequence[RegisteredSchema]:
        return await stored(_registered, workspace)


async def placed_collections() -> Sequence[Placed]:
    """All collections of all workspaces. Raises StorageError."""
    try:
        return await stored(_placed)
    except StoreError as error:
        raise StorageError(str(error)) from None
