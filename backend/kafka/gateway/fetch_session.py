"""Incremental fetch sessions (KIP-227). A client has at most one on each connection."""

import secrets
from dataclasses import dataclass, field

from backend.kafka.gateway.errors import KafkaError
from backend.kafka.wire.api import ErrorCode
from backend.kafka.wire.structs import Struct

_CLOSED, _FULL = -1, 0
_LAST_EPOCH = 2**31 - 1

TopicKey = str | bytes
"""A topic's name, or its id in versions that have it."""
Key = tuple[TopicKey, int]


@dataclass
class Wanted:
    """One partition as the client asked for it, and what it was last told."""

    request: Struct
    ends_sent: tuple[int, ...] | None = None


@dataclass
class FetchSession:
    """The partitions that a client fetches. ``id`` is 0 without a session."""

    id: int = 0
    epoch: int = 0
    wanted: dict[Key, Wanted] = field(default_factory=dict)

    def update(self, request: Struct) -> tuple[dict[Key, Wanted], bool]:
        """Takes over what the request says. Returns the partitions to read, and whether only changed ones are to be
        answered. Raises KafkaError when there is no such session, or a request of it was lost."""
        if request.session_epoch in (_CLOSED, _FULL):
            self.id, self.epoch, self.wanted = 0, 0, _partitions(request)
            if request.session_epoch == _FULL:
                self.id, self.epoch = secrets.randbelow(2**31 - 1) + 1, 1
                return self.wanted, False
            wanted, self.wanted = self.wanted, {}
            return wanted, False
        if request.session_id != self.id or self.id == 0:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if request.session_epoch != self.epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1
        for topic in request.forgotten_topics_data:
            for partition in topic.partitions:
                self.wanted.pop((_topic_key(topic), partition), None)
        for key, partition in _partitions(request).items():
            former = self.wanted.pop(key, None)
            self.wanted[key] = Wanted(partition.request, former.ends_sent if former is not None else None)
        return self.wanted, True

    def served(self, key: Key) -> None:
        """Moves a partition that had records to the end, so that none is starved by others."""
        wanted = self.wanted.pop(key, None)
        if wanted is not None:
            self.wanted[key] = wanted


def _topic_key(topic: Struct) -> TopicKey:
    name: str = topic.topic
    return name or bytes(topic.topic_id)


def _partitions(request: Struct) -> dict[Key, Wanted]:
    return {
        (_topic_key(topic), partition.partition): Wanted(partition)
        for topic in request.topics
        for partition in topic.partitions
    }
