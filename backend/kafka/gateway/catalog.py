"""The collections that clients see as topics."""

import asyncio
import logging
from uuid import UUID

from backend.kafka.gateway.ports import Collection, Storage, StorageError

log = logging.getLogger(__name__)

_REFRESH_SECONDS = 1.0


class Catalog:
    """All collections, read again every second. ``version`` grows whenever they change."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._by_id: dict[UUID, Collection] = {}
        self._by_name: dict[tuple[UUID, str], Collection] = {}
        self.version = 0

    async def refresh(self) -> None:
        """Raises StorageError."""
        collections = {collection.id: collection for collection in await self._storage.collections()}
        if collections != self._by_id:
            self._by_id = collections
            self._by_name = {(c.workspace, c.name): c for c in collections.values()}
            self.version += 1

    async def keep_refreshed(self) -> None:
        """Until it is cancelled. While the storage does not answer, the last known collections are served."""
        has_failed = False
        while True:
            await asyncio.sleep(_REFRESH_SECONDS)
            try:
                await self.refresh()
                has_failed = False
            except StorageError as error:
                if not has_failed:
                    log.warning("The collections could not be listed: %s", error)
                has_failed = True

    def of(self, workspace: UUID) -> list[Collection]:
        return sorted((c for c in self._by_id.values() if c.workspace == workspace), key=lambda c: c.name)

    def named(self, workspace: UUID, name: str) -> Collection | None:
        return self._by_name.get((workspace, name))

    def with_id(self, workspace: UUID, topic_id: bytes) -> Collection | None:
        collection = self._by_id.get(UUID(bytes=topic_id))
        return collection if collection is not None and collection.workspace == workspace else None
