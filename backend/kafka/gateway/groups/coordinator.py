"""The groups that this node coordinates.

A group belongs to the node that the placement chooses. That node claims it in the store, which gives it a fencing
token: whatever a former coordinator still wants to store is rejected. The state is stored after every rebalance, so
that members need not notice when another node takes over.
"""

import asyncio
import logging
import time
from typing import Any
from uuid import UUID

from backend.kafka.gateway.catalog import Catalog
from backend.kafka.gateway.errors import KafkaError
from backend.kafka.gateway.groups.classic import ClassicMembers
from backend.kafka.gateway.groups.consumer import ConsumerMembers
from backend.kafka.gateway.groups.members import CONSUMER, Members
from backend.kafka.gateway.nodes import Nodes
from backend.kafka.gateway.ports import FencedError, GroupKey, GroupStore, StoredGroup, StoreError
from backend.kafka.wire.api import ErrorCode

log = logging.getLogger(__name__)

_SWEEP_SECONDS = 0.1
_MAX_NAME = 255


class Group:
    """One group that this node coordinates. ``claim`` is the fencing token."""

    def __init__(self, key: GroupKey, stored: StoredGroup, coordinator: "Coordinator") -> None:
        self.key = key
        self.claim = stored.claim
        self._coordinator = coordinator
        self.members: Members = self._load(stored.state)

    def _load(self, state: dict[str, Any]) -> Members:
        if state.get("kind") == CONSUMER:
            return ConsumerMembers.load(state, self.save)
        return ClassicMembers.load(state, self.save) if state else ClassicMembers(self.save)

    def classic(self) -> ClassicMembers:
        """The members, for a request of the classic protocol. Raises KafkaError while others are in the group."""
        if not isinstance(self.members, ClassicMembers):
            if not self.members.is_empty:
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            self.members = ClassicMembers(self.save)
        return self.members

    def consumer(self) -> ConsumerMembers:
        """The members, for a request of the consumer protocol. Raises KafkaError while others are in the group."""
        if not isinstance(self.members, ConsumerMembers):
            if not self.members.is_empty:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "The group has members with the classic protocol.")
            self.members = ConsumerMembers(self.save)
        return self.members

    async def save(self, state: dict[str, Any]) -> None:
        """Raises KafkaError."""
        await self._coordinator.stored(self, self._coordinator.store.save(self.key, self.claim, state))


class Coordinator:
    """All groups of this node."""

    def __init__(self, nodes: Nodes, store: GroupStore, catalog: Catalog) -> None:
        self.store = store
        self.catalog = catalog
        self._nodes = nodes
        self._groups: dict[GroupKey, Group] = {}
        self._locks: dict[GroupKey, asyncio.Lock] = {}
        nodes.on_change(self._release)

    async def group(self, workspace: UUID, name: str) -> Group:
        """The group, made if there is none. Raises KafkaError."""
        group = await self.find(workspace, name, create=True)
        assert group is not None
        return group

    async def existing(self, workspace: UUID, name: str, missing: ErrorCode) -> Group:
        """The group. Raises KafkaError, with ``missing`` if there is none."""
        group = await self.find(workspace, name)
        if group is None:
            raise KafkaError(missing)
        return group

    async def find(self, workspace: UUID, name: str, *, create: bool = False) -> Group | None:
        """Raises KafkaError when another node coordinates the group, or the store does not answer."""
        key = (workspace, name)
        self.check(key)
        group = self._groups.get(key)
        if group is not None:
            return group
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            try:
                if key not in self._groups:
                    stored = await self.store.claim(key, create=create)
                    self.check(key)  # the nodes may have changed meanwhile
                    if stored is not None:
                        self._groups[key] = Group(key, stored, self)
            except StoreError as error:
                log.warning("The group %s could not be read: %s", name, error)
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE) from None
            finally:
                self._locks.pop(key, None)
        return self._groups.get(key)

    def check(self, key: GroupKey) -> None:
        """Raises KafkaError when the name cannot be a group's, or another node coordinates the group."""
        if not key[1] or len(key[1]) > _MAX_NAME or "\0" in key[1]:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        if self._nodes.coordinator(key) != self._nodes.local:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)

    async def stored(self, group: Group, work: Any) -> None:
        """Awaits a change in the store. Raises KafkaError; a group that another node has claimed is given up."""
        try:
            await work
        except FencedError:
            self._give_up(group)
            raise KafkaError(ErrorCode.NOT_COORDINATOR) from None
        except StoreError as error:
            log.warning("The group %s could not be stored: %s", group.key[1], error)
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE) from None

    async def delete(self, group: Group) -> None:
        """Raises KafkaError when the group has members."""
        if not group.members.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        await self.stored(group, self.store.delete(group.key, group.claim))
        self._groups.pop(group.key, None)

    async def names(self, workspace: UUID) -> list[str]:
        """The workspace's groups that this node coordinates. Raises KafkaError."""
        try:
            names = await self.store.names(workspace)
        except StoreError:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE) from None
        return [name for name in names if self._nodes.coordinator_of(workspace, name) == self._nodes.local]

    async def keep_sweeping(self) -> None:
        """Removes members that are not heard of, until it is cancelled."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            now = time.monotonic()
            for group in list(self._groups.values()):
                try:
                    if group.members.expire(now):
                        await group.save(group.members.dump())
                except KafkaError:
                    continue  # it is saved with the next change
                except Exception:
                    log.exception("The group %s could not be swept.", group.key[1])

    def _release(self) -> None:
        """The nodes have changed: gives up the groups that are now another's."""
        for group in list(self._groups.values()):
            if self._nodes.coordinator(group.key) != self._nodes.local:
                self._give_up(group)

    def _give_up(self, group: Group) -> None:
        if self._groups.get(group.key) is group:
            del self._groups[group.key]
        group.members.give_up(ErrorCode.NOT_COORDINATOR)
