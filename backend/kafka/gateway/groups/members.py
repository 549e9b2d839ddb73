"""What the two kinds of consumer groups have in common."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

from backend.kafka.gateway.errors import KafkaError
from backend.kafka.wire.api import ErrorCode

CLASSIC, CONSUMER = "classic", "consumer"
"""Types of groups: with JoinGroup, and with ConsumerGroupHeartbeat (KIP-848)."""


@dataclass(frozen=True)
class Caller:
    """The client that sends a group's request."""

    client_id: str
    host: str


class _Identified(Protocol):
    id: str
    instance_id: str | None


M = TypeVar("M", bound=_Identified)


def of_instance(members: Mapping[str, M], instance_id: str | None) -> M | None:
    """The static member with the id of the instance."""
    if instance_id is None:
        return None
    return next((member for member in members.values() if member.instance_id == instance_id), None)


def known_member(members: Mapping[str, M], member_id: str, instance_id: str | None) -> M:
    """Raises KafkaError when there is none, or another one has taken the instance's place."""
    static = of_instance(members, instance_id)
    if static is not None and static.id != member_id:
        raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
    member = members.get(member_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    return member


Save = Callable[[dict[str, Any]], Awaitable[None]]
"""Stores a group's state. Raises KafkaError when that is impossible, or another node has the group."""


class Members(ABC):
    """The members of one group. Methods raise KafkaError with the code for the client."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def is_empty(self) -> bool: ...

    @property
    @abstractmethod
    def state(self) -> str:
        """The group's state, as it is listed."""

    @property
    @abstractmethod
    def protocol_type(self) -> str: ...

    @abstractmethod
    def topics(self) -> set[str]:
        """The topics that members subscribe to, as far as they can be read."""

    @abstractmethod
    def check_commit(self, member_id: str, instance_id: str | None, generation: int) -> None:
        """Whether this member may commit offsets now."""

    @abstractmethod
    def check_fetch(self, member_id: str, epoch: int) -> None:
        """Whether this member may read committed offsets, in versions that tell who asks."""

    @abstractmethod
    def expire(self, now: float) -> bool:
        """Removes members that have not been heard of. Whether the state has to be saved."""

    @abstractmethod
    def give_up(self, code: ErrorCode) -> None:
        """Answers every waiting request with the code: this node has lost the group."""

    @abstractmethod
    def dump(self) -> dict[str, Any]:
        """The state, as JSON's types, from which another node goes on."""
