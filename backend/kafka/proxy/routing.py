"""How a request is split over brokers and their answers are merged. strategies.py implements it; routes.py assigns
it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from backend.kafka.proxy.config import ProxyNode
from backend.kafka.proxy.nodes import Nodes
from backend.kafka.proxy.rejected_writes import RejectedWrites
from backend.kafka.proxy.topology import Broker, TopicKey, Topology
from backend.kafka.wire.api import ErrorCode
from backend.kafka.wire.structs import Struct

STALE_LEADER = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
}


@dataclass(slots=True)
class Leg:
    """The part of a request that one broker gets. Without a broker it goes to any; without a body the client's frame is
    forwarded unchanged. One that has an answer already goes to none."""

    broker: Broker | None
    body: Struct | None = None
    answer: Struct | None = None


class Lookup:
    """The topology as seen by one request, and what its client has to repeat. Notes what is missing and must be
    requested before the request is sent."""

    def __init__(self, topology: Topology, nodes: Nodes, rejected: RejectedWrites) -> None:
        self.topology = topology
        self.nodes = nodes
        self.rejected = rejected
        self.topics: set[TopicKey] = set()
        self.coordinators: set[tuple[int, str]] = set()
        self.cluster = False

    @property
    def is_complete(self) -> bool:
        return not (self.topics or self.coordinators or self.cluster)

    def leader(self, topic: TopicKey, partition: int) -> Broker | None:
        broker = self.topology.leader(topic, partition)
        if broker is None:
            self.topics.add(topic)
        return broker

    def coordinator(self, kind: int, key: str) -> Broker | None:
        broker = self.topology.coordinator(kind, key)
        if broker is None:
            self.coordinators.add((kind, key))
        return broker

    def controller(self) -> Broker | None:
        broker = self.topology.brokers.get(self.topology.controller)
        self.cluster |= broker is None
        return broker

    def broker(self, broker_id: int) -> Broker | None:
        self.cluster |= not self.topology.brokers
        return self.topology.brokers.get(broker_id)

    def own_brokers(self) -> list[Broker]:
        """The brokers that this proxy represents."""
        brokers = self.topology.brokers.values()
        self.cluster |= not brokers
        assigned = self.proxies()
        return [broker for broker in brokers if assigned[broker.id] is self.nodes.local]

    def proxies(self) -> dict[int, ProxyNode]:
        """The proxy that represents each broker, by the broker's id."""
        return self.nodes.assignment(self.topology.brokers.values())


class Route(ABC):
    """How one API's requests are handled.

    ``is_repeatable`` marks requests that change nothing: if any broker will do and one is lost, another one gets them.
    """

    reads_request = True
    reads_answer = True
    is_repeatable = False

    @abstractmethod
    def legs(self, request: Struct, lookup: Lookup) -> list[Leg]:
        """Splits the request. Called again after missing parts of the topology have been requested."""

    def answered(self, request: Struct, leg: Leg, lookup: Lookup) -> None:
        """Updates the topology from the leg's answer and replaces the brokers' addresses in it."""
        return

    def keeps(self, leg: Leg) -> bool:
        """Whether the client gets the broker's frame unchanged."""
        return True

    def merged(self, request: Struct, legs: list[Leg]) -> Struct:
        """Merges the answers of all legs; each has one."""
        assert legs[0].answer is not None
        return legs[0].answer

    def lost(self, api_key: int, request: Struct, leg: Leg) -> Struct | None:
        """The answer for a leg whose broker was lost; if None, the client's connection is closed."""
        return None


def error_codes(body: Any) -> Iterator[int]:
    """Every error code in an answer."""
    for field in body._fields:
        value = getattr(body, field.name)
        if field.name.endswith("error_code"):
            yield value
        elif field.fields and value is not None:
            for inner in value if field.is_array else (value,):
                yield from error_codes(inner)


def with_summary(legs: list[Leg], **lists: Any) -> Struct:
    """The first answer with the given lists, the longest throttle time and the first error of all answers."""
    first = legs[0].answer
    assert first is not None
    names = {field.name for field in first._fields}
    answers = [leg.answer for leg in legs if leg.answer is not None]
    if "throttle_time_ms" in names:
        lists["throttle_time_ms"] = max(answer.throttle_time_ms for answer in answers)
    if "error_code" in names:
        lists["error_code"] = next((answer.error_code for answer in answers if answer.error_code), 0)
    return first.copy(**lists)
