"""One member of a group whose assignment the gateway computes, and its way to a new assignment."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from backend.kafka.gateway.groups.assignors import Partition


@dataclass(eq=False)
class ConsumerMember:
    """``assigned`` is what the member may read, ``revoking`` what it still has to give back. ``epoch`` is the group's
    epoch whose assignment it has reached; ``has_left`` for a static member that is expected back."""

    id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    host: str
    rebalance_seconds: float = 45.0
    names: set[str] = field(default_factory=set)
    regex: str = ""
    assignor: str = ""
    epoch: int = 0
    previous_epoch: int = -1
    assigned: set[Partition] = field(default_factory=set)
    revoking: set[Partition] = field(default_factory=set)
    assignment_sent: frozenset[Partition] | None = None
    has_left: bool = False
    expires: float = 0.0
    revoke_by: float = 0.0

    def heard(self, session_seconds: float) -> None:
        self.expires = time.monotonic() + session_seconds

    @property
    def held(self) -> set[Partition]:
        """What no other member may have yet."""
        return self.assigned | self.revoking

    def reconcile(
        self, target: set[Partition], epoch: int, owned: set[Partition] | None, taken: set[Partition]
    ) -> bool:
        """Takes the next step to the target assignment of that epoch. ``owned`` is what the member says it has, None if
        it says nothing; ``taken`` is what others hold. Whether anything has changed."""
        before = (self.epoch, set(self.assigned), set(self.revoking))
        if self.revoking:
            if owned is None or owned & self.revoking:
                return False
            self.revoking = set()
        kept = self.assigned & target
        revoking = self.assigned - target
        if revoking and (owned is None or owned & revoking):
            self.assigned, self.revoking = kept, revoking
            self.revoke_by = time.monotonic() + self.rebalance_seconds
        else:
            self.assigned = kept | (target - taken)
            if self.epoch != epoch:
                self.previous_epoch, self.epoch = self.epoch, epoch
        return before != (self.epoch, self.assigned, self.revoking)

    def dump(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "instance_id": self.instance_id,
            "rack_id": self.rack_id,
            "client_id": self.client_id,
            "host": self.host,
            "rebalance_seconds": self.rebalance_seconds,
            "names": sorted(self.names),
            "regex": self.regex,
            "assignor": self.assignor,
            "epoch": self.epoch,
            "previous_epoch": self.previous_epoch,
            "assigned": dump_partitions(self.assigned),
            "revoking": dump_partitions(self.revoking),
            "has_left": self.has_left,
        }

    @classmethod
    def load(cls, fields: dict[str, Any]) -> "ConsumerMember":
        sets = {
            "names": set(fields["names"]),
            "assigned": load_partitions(fields["assigned"]),
            "revoking": load_partitions(fields["revoking"]),
        }
        return cls(**{**fields, **sets})


def dump_partitions(partitions: Iterable[Partition]) -> list[list[Any]]:
    return [[str(topic), number] for topic, number in sorted(partitions)]


def load_partitions(dumped: list[list[Any]]) -> set[Partition]:
    return {(UUID(topic), number) for topic, number in dumped}
