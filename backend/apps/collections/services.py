"""Changes to collections."""

import logging
import time
from uuid import UUID

from django.db import transaction

from backend.apps.audit.services import audit_record
from backend.apps.collections.models import WrittenCollection
from backend.apps.collections.selectors import collection_store, connection_of, streams_fed_by
from backend.apps.connectors.models import Connector
from backend.apps.connectors.services import connector_delete
from backend.apps.workspaces.models import User
from backend.change_streams import checkpoint
from backend.change_streams.feed import source_name
from backend.collections.errors import CollectionError, CollectionMissingError, FencedError
from backend.collections.maintenance import (
    Retention,
    apply_retention,
    merge,
    reduce_to_last,
    remove_before,
    reset,
    vacuum,
)
from backend.collections.table import Table, source_id
from backend.connectors.collection import Collection
from backend.connectors.materialize_cdc import MaterializeCdc
from backend.domain.errors import ConflictError
from backend.domain.model import UnreadableConfigError

log = logging.getLogger(__name__)

_UNREDUCED_MILLISECONDS = 3_600_000
"""So long all documents of a reduced collection are kept, for consumers that want every one."""
_DELETIONS_MILLISECONDS = 24 * 3_600_000
"""So long deletions are kept, for consumers that have to learn of them."""


def collection_reset(*, collection: Connector, actor: User) -> int:
    """Removes all documents and raises the leader epoch, which is returned: what is appended from now on has offsets
    after theirs. Raises ConflictError when nothing was ever written to it, CollectionError."""
    location = collection_store().location(str(collection.workspace_id), str(collection.pk))
    try:
        epoch = reset(Table(location))
    except CollectionMissingError:
        raise ConflictError("Nothing was written to this collection yet.") from None
    audit_record(
        action="collection.reset",
        actor=actor,
        workspace=collection.workspace,
        target=collection,
        after={"leader_epoch": epoch},
    )
    return epoch


def collection_delete(*, collection: Connector, actor: User) -> None:
    """Deletes the connector and its documents. Raises ConflictError while a pipeline uses it."""
    workspace_id, collection_id = str(collection.workspace_id), str(collection.pk)
    connector_delete(connector=collection, actor=actor)
    transaction.on_commit(lambda: _remove(workspace_id, collection_id), robust=True)


def collections_maintain() -> None:
    """Of every collection: merges small files, and removes what retention does not keep. Collections without a
    connector are deleted."""
    for workspace_id, collection_id in collection_store().all():
        collection = _connector(workspace_id, collection_id)
        try:
            if collection is None:
                _remove(workspace_id, collection_id)
            else:
                WrittenCollection.objects.get_or_create(collection=collection)
                _maintain(collection)
        except FencedError as error:  # another one did it, or it is done next time
            log.info("%s", error)
        except (CollectionError, UnreadableConfigError) as error:
            log.warning("The collection %s cannot be maintained at the moment: %s", collection_id, error)


def collections_vacuum() -> None:
    """Deletes the files of every collection that have been unused for a day."""
    for workspace_id, collection_id in collection_store().all():
        try:
            vacuum(Table(collection_store().location(workspace_id, collection_id)))
        except CollectionError as error:
            log.warning("Unused files of %s cannot be deleted at the moment: %s", collection_id, error)


def _connector(workspace_id: str, collection_id: str) -> Connector | None:
    try:
        ids = {"pk": UUID(collection_id), "workspace_id": UUID(workspace_id)}
    except ValueError:
        return None
    return Connector.objects.filter(**ids, type__in=[Collection.type, MaterializeCdc.type]).first()


def _maintain(collection: Connector) -> None:
    """Raises CollectionError, UnreadableConfigError."""
    table = Table(collection_store().location(str(collection.workspace_id), str(collection.pk)))
    if collection.type == MaterializeCdc.type:
        _maintain_stream(table, last_by_key=collection.connection.get("reduce") == "last_by_key")
        return
    connection = connection_of(collection)
    retention = Retention(hours=connection.keep_hours, bytes=connection.keep_bytes)
    if connection.reduce == "last_by_key":
        now = time.time_ns() // 1_000_000
        old = table.snapshot().offsets_at(now - _UNREDUCED_MILLISECONDS)
        reduce_to_last(table, old, deletions_until=now - _DELETIONS_MILLISECONDS)
    merge(table, retention)
    apply_retention(table, retention, needed=_needed_by_streams(collection, table))


def _needed_by_streams(collection: Connector, table: Table) -> dict[int, int]:
    """By partition, the first offset that some change stream has not taken over. Raises CollectionError."""
    needed: dict[int, int] = {}
    for stream in streams_fed_by(collection):
        try:
            log_table = Table(collection_store().location(str(stream.workspace_id), str(stream.pk)))
        except CollectionMissingError:  # it has just been made
            return dict.fromkeys(range(table.partitions), 0)
        for partition in range(table.partitions):
            position = log_table.transaction(source_id(source_name(str(collection.pk), partition))) or 0
            needed[partition] = min(position, needed.get(partition, position))
    return needed


def _maintain_stream(table: Table, *, last_by_key: bool) -> None:
    """Keeps what is not sent, and of what is sent what later documents replace. Raises CollectionError."""
    sent = checkpoint.load(table).begin
    if last_by_key:
        reduce_to_last(table, sent, deletions_until=time.time_ns() // 1_000_000)
    else:
        remove_before(table, sent)
    merge(table, Retention())


def _remove(workspace_id: str, collection_id: str) -> None:
    collection_store().delete(workspace_id, collection_id)
