"""One member of a classic group, and what it is answered."""

import asyncio
import base64
import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from backend.kafka.gateway.errors import KafkaError
from backend.kafka.wire.api import ErrorCode


class State(StrEnum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(eq=False)
class Member:
    """One member. ``joining`` and ``syncing`` are the requests in which it waits."""

    id: str
    instance_id: str | None
    client_id: str
    host: str
    session_seconds: float
    rebalance_seconds: float
    protocols: dict[str, bytes]
    assignment: bytes = b""
    expires: float = 0.0
    joining: "asyncio.Future[Joined] | None" = None
    syncing: "asyncio.Future[bytes] | None" = None

    def heard(self) -> None:
        self.expires = time.monotonic() + self.session_seconds

    @property
    def is_waiting(self) -> bool:
        return self.joining is not None or self.syncing is not None

    def fail(self, error: KafkaError) -> None:
        for future in (self.joining, self.syncing):
            if future is not None and not future.done():
                future.set_exception(error)
        self.joining = self.syncing = None

    def dump(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "instance_id": self.instance_id,
            "client_id": self.client_id,
            "host": self.host,
            "session_seconds": self.session_seconds,
            "rebalance_seconds": self.rebalance_seconds,
            "protocols": [[name, _text(metadata)] for name, metadata in self.protocols.items()],
            "assignment": _text(self.assignment),
        }

    @classmethod
    def load(cls, fields: dict[str, Any]) -> "Member":
        protocols = {name: base64.b64decode(text) for name, text in fields["protocols"]}
        assignment = base64.b64decode(fields["assignment"])
        member = cls(**{**fields, "protocols": protocols, "assignment": assignment})
        member.heard()
        return member


@dataclass(frozen=True)
class Joined:
    """The answer to JoinGroup. ``members`` has everybody's metadata and is for the leader only."""

    generation: int
    protocol: str
    leader: str
    member_id: str
    members: list[tuple[str, str | None, bytes]] = field(default_factory=list)
    skip_assignment: bool = False


class MemberIdRequiredError(KafkaError):
    """A new member has to join again with the id that it is given here: KIP-394."""

    def __init__(self, member_id: str) -> None:
        super().__init__(ErrorCode.MEMBER_ID_REQUIRED)
        self.member_id = member_id


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
