"""What the two kinds of fetch sessions share: fetch.py and share.py."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from backend.kafka.proxy.broker_connection import Lost
from backend.kafka.proxy.routing import Lookup
from backend.kafka.proxy.topology import Broker, TopicKey
from backend.kafka.wire.api import ApiKey
from backend.kafka.wire.structs import Struct

Key = tuple[TopicKey, int]
"""A topic and a partition's number."""

GRACE_SECONDS = 0.5
"""How long after the client's wait brokers may take to answer that they have nothing."""

_LAST_EPOCH = 2**31 - 1


class Brokers(Protocol):
    """The brokers, as one client's connection reaches them."""

    def request(
        self,
        api_key: ApiKey,
        broker: Broker | None,
        body: Struct,
        version: int,
        answered: Callable[[Struct | Lost], None],
        *,
        patience: float,
    ) -> None:
        """Sends a request to a broker, or to any if it is None. ``patience`` extends the timeout by that many
        seconds."""

    def lookup(self) -> Lookup: ...

    def resolve(self, lookup: Lookup, then: Callable[[], None]) -> None:
        """Requests from the brokers what the lookup lacks, then calls ``then``."""


def next_epoch(epoch: int) -> int:
    """The epoch that follows in a session; 0 is reserved for starting a new session."""
    return 1 if epoch == _LAST_EPOCH else epoch + 1


def by_topic(kind: type[Struct], partitions: Iterable[tuple[Key, Any]]) -> list[Struct]:
    """Groups partitions by topic, in structs of the given type."""
    topics: dict[TopicKey, Struct] = {}
    for (topic, _), partition in partitions:
        if topic not in topics:
            topics[topic] = kind(topic=topic) if isinstance(topic, str) else kind(topic_id=topic)
        topics[topic].partitions.append(partition)
    return list(topics.values())
