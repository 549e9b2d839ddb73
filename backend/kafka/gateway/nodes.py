"""The nodes of the gateway: which are alive, and which serves what."""

import asyncio
import logging
from collections.abc import Callable
from uuid import UUID

from backend.kafka.gateway.ports import Collection, Directory, GroupKey, Node, StoreError
from backend.kafka.server.placement import chosen

log = logging.getLogger(__name__)

_BEAT_SECONDS = 0.5


class Nodes:
    """All living nodes, as this one knows them. Every node can serve everything; the placement spreads the work and
    gives each group one coordinator."""

    def __init__(self, local: Node, directory: Directory) -> None:
        self.local = local
        self._directory = directory
        self._living: dict[int, Node] = {local.id: local}
        self._listeners: list[Callable[[], None]] = []

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    @property
    def living(self) -> list[Node]:
        return sorted(self._living.values(), key=lambda node: node.id)

    def leader(self, collection: Collection, partition: int) -> Node:
        """The node that serves a partition."""
        return self._living[chosen(f"{collection.id}/{partition}", self._living)]

    def coordinator(self, group: GroupKey) -> Node:
        return self.coordinator_of(*group)

    def coordinator_of(self, workspace: UUID, name: str) -> Node:
        """The node that coordinates a consumer group."""
        return self._living[chosen(f"{workspace}/{name}", self._living)]

    async def beat(self) -> None:
        """Raises StoreError."""
        living = {node.id: node for node in await self._directory.beat(self.local)}
        living[self.local.id] = self.local
        if living != self._living:
            log.info("The gateway's nodes are now %s.", ", ".join(f"{n.id} ({n.address})" for n in living.values()))
            self._living = living
            for listener in self._listeners:
                listener()

    async def keep_beating(self) -> None:
        """Until it is cancelled. Without the directory the last known nodes stay."""
        has_failed = False
        while True:
            await asyncio.sleep(_BEAT_SECONDS)
            try:
                await self.beat()
                has_failed = False
            except StoreError as error:
                if not has_failed:
                    log.warning("The gateway's nodes could not be read: %s", error)
                has_failed = True

    async def leave(self) -> None:
        try:
            await self._directory.leave(self.local)
        except StoreError as error:
            log.warning("The other nodes could not be told that this one stops: %s", error)
