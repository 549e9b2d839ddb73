"""The proxy's view of the cluster: brokers, leaders, coordinators. All client connections share and update it."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from backend.kafka.server.listen import HostPort
from backend.kafka.wire.api import ErrorCode
from backend.kafka.wire.structs import Struct

log = logging.getLogger(__name__)

TopicKey = str | bytes
"""A topic's name, or its id of 16 bytes."""

NO_ID = bytes(16)
_NO_LEADER = (-1, -1)


@dataclass(frozen=True, slots=True)
class Broker:
    id: int
    address: HostPort
    rack: str | None

    def __hash__(self) -> int:
        return self.id


@dataclass(slots=True)
class Topic:
    name: str
    id: bytes
    leaders: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The leader's id and epoch by partition; partitions without a leader are left out."""


class Topology:
    """Learned from the answers that pass through, and from what connections request when something is missing."""

    def __init__(self) -> None:
        self.brokers: dict[int, Broker] = {}
        self.controller = -1
        self.cluster_id: str | None = None
        self.demands_login: bool | None = None
        """Whether brokers demand that clients sign in with SASL; None while it is unknown."""
        self._topics: dict[TopicKey, Topic] = {}
        self._coordinators: dict[tuple[int, str], int] = {}

    def leader(self, topic: TopicKey, partition: int) -> Broker | None:
        known = self._topics.get(topic)
        return self.brokers.get(known.leaders.get(partition, _NO_LEADER)[0]) if known is not None else None

    def coordinator(self, kind: int, key: str) -> Broker | None:
        return self.brokers.get(self._coordinators.get((kind, key), -1))

    def topics(self) -> list[Topic]:
        return [topic for key, topic in self._topics.items() if isinstance(key, str)]

    # -- learning

    def learn_metadata(self, answer: Struct) -> None:
        """Updates brokers and topics from a Metadata response, before its addresses are replaced."""
        self.learn_brokers((b.node_id, b.host, b.port, b.rack) for b in answer.brokers)
        self.controller = answer.controller_id
        self.cluster_id = answer.cluster_id or self.cluster_id
        for topic in answer.topics:
            if topic.error_code == ErrorCode.NONE and topic.name is not None:
                self._learn_topic(topic)
            else:
                self.forget_topic(topic.name if topic.name is not None else topic.topic_id)

    def _learn_topic(self, topic: Struct) -> None:
        known = self._topics.get(topic.name)
        topic_id = topic.topic_id
        if topic_id == NO_ID and known is not None:  # the response's version has no topic ids
            topic_id = known.id
        leaders = {p.partition_index: (p.leader_id, p.leader_epoch) for p in topic.partitions if p.leader_id >= 0}
        if known is not None and known.id == topic_id:
            # A broker whose metadata lags behind may still name a former leader.
            for partition, (leader, epoch) in known.leaders.items():
                if leaders.get(partition, _NO_LEADER)[1] < epoch and partition in leaders:
                    leaders[partition] = (leader, epoch)
        updated = Topic(topic.name, topic_id, leaders)
        if known is not None and known.id != topic_id:
            self._topics.pop(known.id, None)
        self._topics[updated.name] = updated
        if topic_id != NO_ID:
            self._topics[topic_id] = updated

    def learn_brokers(self, brokers: Iterable[tuple[int, str, int, str | None]]) -> None:
        """Replaces the list of brokers by the given one, which is complete."""
        by_id = {
            node_id: Broker(node_id, HostPort(host=host, port=port), rack) for node_id, host, port, rack in brokers
        }
        if by_id and by_id != self.brokers:
            log.info("Brokers: %s", ", ".join(f"{b.id} at {b.address}" for b in by_id.values()))
            self.brokers = by_id

    def learn_coordinator(self, kind: int, key: str, broker: int) -> None:
        self._coordinators[(kind, key)] = broker

    # -- forgetting

    def forget_topic(self, key: TopicKey) -> None:
        known = self._topics.pop(key, None)
        if known is not None:
            self._topics.pop(known.name, None)
            self._topics.pop(known.id, None)

    def forget_coordinator(self, kind: int, key: str) -> None:
        self._coordinators.pop((kind, key), None)

    def forget_controller(self) -> None:
        self.controller = -1

    def suspect(self, broker: Broker) -> None:
        """Forgets what a broker led or coordinated after it became unavailable, so that it is requested again."""
        for topic in self.topics():
            if any(leader == broker.id for leader, _ in topic.leaders.values()):
                self.forget_topic(topic.name)
        for key in [key for key, coordinator in self._coordinators.items() if coordinator == broker.id]:
            del self._coordinators[key]
        if self.controller == broker.id:
            self.forget_controller()
