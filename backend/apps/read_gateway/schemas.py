"""The Avro schemas of collections, as versions with numbers that never change."""

from collections.abc import Sequence
from functools import lru_cache
from uuid import UUID

from django.db import transaction

from backend.apps.connectors.models import Connector
from backend.apps.read_gateway.models import ValueSchema
from backend.domain import json
from backend.domain.avro.schema import AvroSchema
from backend.kafka.gateway.values import Schema

_EFFECTIVE_MILLISECONDS = 5_000
"""So long after its registration a version takes effect: by then all nodes know it, and choose the same for a
document."""


def versions_of(collections: Sequence[Connector]) -> dict[UUID, list[ValueSchema]]:
    """The versions of each collection's schema, the oldest first. A schema that is new gets a version."""
    versions: dict[UUID, list[ValueSchema]] = {collection.id: [] for collection in collections}
    for row in ValueSchema.objects.filter(collection__in=versions).order_by("version"):
        versions[row.collection].append(row)
    for collection in collections:
        known = versions[collection.id]
        if not known or known[-1].schema != _text(collection):
            known += _registered(collection.id)
    return versions


def _text(collection: Connector) -> str:
    return json.dumps(collection.connection["avro_schema"]).decode()


@transaction.atomic
def _registered(collection_id: UUID) -> list[ValueSchema]:
    """A new version, unless another thread or node has registered it. Its lock and the schema that it reads then keep
    one that has read a former schema from registering that again."""
    collection = Connector.objects.select_for_update().filter(pk=collection_id).first()
    if collection is None or not collection.connection.get("avro_schema"):
        return []
    newest = ValueSchema.objects.filter(collection=collection_id).order_by("-version").first()
    if newest is not None and newest.schema == _text(collection):
        return []
    version = newest.version + 1 if newest is not None else 1
    row = ValueSchema.objects.create(collection=collection_id, schema=_text(collection), version=version)
    row.refresh_from_db()
    return [row]


def parsed(row: ValueSchema) -> Schema:
    since = row.registered_at.timestamp() * 1000 + _EFFECTIVE_MILLISECONDS
    return Schema(row.id, _parsed(row.schema), round(since))


@lru_cache(maxsize=1000)
def _parsed(text: str) -> AvroSchema:
    return AvroSchema(json.loads(text))
