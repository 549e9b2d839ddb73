"""What the gateway needs from the rest of Headrace."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from backend.kafka.server.listen import HostPort
from backend.kafka.server.scram import Verifier


class Record(NamedTuple):
    """What a consumer receives. ``timestamp`` is in milliseconds since 1970; a tombstone has no value."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True)
class Collection:
    """A collection, which clients see as a topic of the same name. ``form`` changes whenever the same documents become
    other records."""

    id: UUID
    workspace: UUID
    name: str
    partitions: int
    form: str = ""


@dataclass(frozen=True, slots=True)
class Ends:
    """The offsets of a partition's first record and of its next one, and its leader epoch, which a reset raises."""

    start: int
    end: int
    epoch: int


class StorageError(Exception):
    """A collection cannot be read now; the message says why."""


class Storage(Protocol):
    """The collections. Every method raises StorageError."""

    async def collections(self) -> Sequence[Collection]:
        """All collections of all workspaces."""

    async def ends(self, collection: Collection) -> Sequence[Ends]:
        """The current ends of the partitions that have been written to."""

    async def read(self, collection: Collection, partition: int, offset: int, max_bytes: int) -> Sequence[Record]:
        """Records from that offset on, in order: at least one if there is any, and about ``max_bytes`` in all."""

    async def at_time(self, collection: Collection, partition: int, timestamp: int) -> tuple[int, int] | None:
        """The offset and timestamp of the first record with this timestamp or a later one."""

    async def epoch_end(self, collection: Collection, partition: int, epoch: int) -> int:
        """The offset at which a leader epoch ended; the end offset for the present one and any later."""


@dataclass(frozen=True)
class Account:
    """An API key that may read."""

    key: UUID
    workspace: UUID


class Accounts(Protocol):
    """Workspaces and their API keys."""

    async def by_key(self, user: str, key: str) -> Account | None:
        """The account of an API key, if the user name is that of its workspace."""

    async def verifiers(self, user: str, mechanism: str) -> tuple[bytes, Sequence[tuple[Account, Verifier]]]:
        """The salt of a workspace, and a verifier of each of its keys. An unknown user has a salt as well."""

    async def revoked(self, keys: Iterable[UUID]) -> set[UUID]:
        """Those of the keys that no longer work."""


@dataclass(frozen=True)
class Node:
    """One process of the gateway, as clients reach it."""

    id: int
    address: HostPort


class Directory(Protocol):
    """The nodes that are alive, which all nodes share."""

    async def beat(self, node: Node) -> Sequence[Node]:
        """Tells the others that the node is alive. Returns all living nodes; raises StoreError."""

    async def leave(self, node: Node) -> None:
        """Tells the others at once that the node stops."""


@dataclass(frozen=True)
class Committed:
    """A committed offset of one partition."""

    offset: int
    leader_epoch: int
    metadata: str


Place = tuple[UUID, int]
"""A collection's id and a partition."""

GroupKey = tuple[UUID, str]
"""A workspace and the name of a consumer group."""


@dataclass(frozen=True)
class StoredGroup:
    """A group's state as its coordinator last stored it. ``claim`` is the fencing token of the new coordinator."""

    claim: int
    state: dict[str, Any]


class StoreError(Exception):
    """The store of groups does not answer."""


class FencedError(Exception):
    """Another node has become the group's coordinator."""


class GroupStore(Protocol):
    """Consumer groups and their offsets. Every method raises StoreError; those with a claim also FencedError."""

    async def claim(self, group: GroupKey, *, create: bool) -> StoredGroup | None:
        """Makes this node the group's coordinator. None if there is no such group and none is to be created."""

    async def save(self, group: GroupKey, claim: int, state: dict[str, Any]) -> None: ...

    async def delete(self, group: GroupKey, claim: int) -> None:
        """Deletes the group and its offsets."""

    async def names(self, workspace: UUID) -> Sequence[str]: ...

    async def commit(self, group: GroupKey, claim: int, offsets: dict[Place, Committed]) -> None: ...

    async def committed(self, group: GroupKey) -> dict[Place, Committed]: ...

    async def forget(self, group: GroupKey, claim: int, places: Iterable[Place]) -> None:
        """Deletes committed offsets."""
