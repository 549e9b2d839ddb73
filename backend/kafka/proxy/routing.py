"""The ways that requests go, and how the answers of several brokers become one. Which API goes which: routes.py."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from backend.kafka.proxy.config import ProxyNode
from backend.kafka.proxy.nodes import Nodes
from backend.kafka.proxy.topology import NO_ID, Broker, TopicKey, Topology
from backend.kafka.wire import codec
from backend.kafka.wire.api import ErrorCode
from backend.kafka.wire.codec import Struct

_BROKER_RESOURCES = (4, 8)
"""Types of configuration resources that are one broker's: BROKER and BROKER_LOGGER."""

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
_STALE_COORDINATOR = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}


@dataclass(slots=True)
class Leg:
    """What one broker is asked. Without a broker any will do; without a body the client's frame goes as it is."""

    broker: Broker | None
    body: Struct | None = None
    answer: Struct | None = None


class Lookup:
    """The topology for one request; notes what is missing, to be asked for before the request goes on."""

    def __init__(self, topology: Topology, nodes: Nodes) -> None:
        self.topology = topology
        self.nodes = nodes
        self.topics: set[TopicKey] = set()
        self.coordinators: set[tuple[int, str]] = set()
        self.cluster = False

    @property
    def is_complete(self) -> bool:
        return not (self.topics or self.coordinators or self.cluster)

    def leader(self, topic: TopicKey, partition: int) -> Broker | None:
        found = self.topology.leader(topic, partition)
        if found is None:
            self.topics.add(topic)
        return found

    def coordinator(self, kind: int, key: str) -> Broker | None:
        found = self.topology.coordinator(kind, key)
        if found is None:
            self.coordinators.add((kind, key))
        return found

    def controller(self) -> Broker | None:
        found = self.topology.brokers.get(self.topology.controller)
        self.cluster |= found is None
        return found

    def broker(self, broker_id: int) -> Broker | None:
        self.cluster |= not self.topology.brokers
        return self.topology.brokers.get(broker_id)

    def own_brokers(self) -> list[Broker]:
        """Those that this proxy stands for."""
        brokers = self.topology.brokers.values()
        self.cluster |= not brokers
        assigned = self.proxies()
        return [broker for broker in brokers if assigned[broker.id] is self.nodes.local]

    def proxies(self) -> dict[int, ProxyNode]:
        """The proxy that stands for each broker, by the broker's id."""
        return self.nodes.assignment(self.topology.brokers.values())


class Route(ABC):
    """``is_repeatable``: it changes nothing, so that another broker is asked when any would do and one is lost."""

    reads_request = True
    reads_answer = True
    is_repeatable = False

    @abstractmethod
    def legs(self, request: Struct, lookup: Lookup) -> list[Leg]:
        """What is asked of whom. It is called again when something missing has been found out."""

    def answered(self, request: Struct, leg: Leg, lookup: Lookup) -> None:
        """Learns and forgets, and takes the brokers' addresses out of the leg's answer."""
        return

    def keeps(self, leg: Leg) -> bool:
        """Whether the client gets the broker's frame as it came."""
        return True

    def merged(self, request: Struct, legs: list[Leg]) -> Struct:
        """One answer of all legs, each of which has one."""
        assert legs[0].answer is not None
        return legs[0].answer

    def lost(self, api_key: int, request: Struct, leg: Leg) -> Struct | None:
        """The answer for a leg whose broker was lost; None closes the client's connection."""
        return None


def _codes(body: Any) -> Iterator[int]:
    """Every error code in an answer."""
    for field in body._fields:
        value = getattr(body, field.name)
        if field.name.endswith("error_code"):
            yield value
        elif field.fields and value is not None:
            for inner in value if field.is_array else (value,):
                yield from _codes(inner)


def _with_summary(legs: list[Leg], **lists: Any) -> Struct:
    """The first answer with the given lists, the longest throttle and the first error of all."""
    first = legs[0].answer
    assert first is not None
    names = {field.name for field in first._fields}
    answers = [leg.answer for leg in legs if leg.answer is not None]
    if "throttle_time_ms" in names:
        lists["throttle_time_ms"] = max(answer.throttle_time_ms for answer in answers)
    if "error_code" in names:
        lists["error_code"] = next((answer.error_code for answer in answers if answer.error_code), 0)
    return first.copy(**lists)


# -- any broker ----------------------------------------------------------------


class Anywhere(Route):
    """Any broker knows, or hands it to the controller itself."""

    reads_request = False
    reads_answer = False

    def legs(self, request: Struct, lookup: Lookup) -> list[Leg]:
        return [Leg(None)]


class AtController(Route):
    """The controller only, or the broker that hands on to it."""

    def legs(self, request: Struct, lookup: Lookup) -> list[Leg]:
        return [Leg(lookup.controller())]

    def answered(self, request: Struct, leg: Leg, lookup: Lookup) -> None:
        if ErrorCode.NOT_CONTROLLER in _codes(leg.answer):
            lookup.topology.forget_controller()


class OfBrokers(Route):
    """Configurations: those of a broker are that broker's, by its own id; the others anybody's."""

    def __init__(self, results: str) -> None:
        self._results = results

    def legs(self, request: Struct, lookup: Lookup) -> list[Leg]:
        by_broker: dict[Broker | None, list[Struct]] = {}
        for resource in request.resources:
            broker = None
            if resource.resource_type in _BROKER_RESOURCES and resource.resource_name.isdigit():
                broker = lookup.broker(int(resource.resource_name))
            by_broker.setdefault(broker, []).append(resource)
        if len(by_broker) <= 1:
            return [Leg(next(iter(by_broker), None))]
        return [Leg(broker, request.copy(resources=resources)) for broker, resources in by_broker.items()]

    def merged(self, request: Struct, legs: list[Leg]) -> Struct:
        results = [result for leg in legs for result in getattr(leg.answer, self._results)]
        return _with_summary(legs, **{self._results: results})


# -- every broker --------------------------------------------------------------


class Everywhere(Route):
    """Each proxy asks the brokers that it stands for, so that all proxies together ask each broker once."""

    def __init__(self, results: str) -> None:
        self._results = results

    def legs(self, request: Struct, lookup: Lookup) -> list[Leg]:
        return [Leg(broker, request) for broker in lookup.own_brokers()]

    def merged(self, request: Struct, legs: list[Leg]) -> Struct:
        results = [result for leg in legs for result in self._results_of(leg)]
        return _with_summary(legs, **{self._results: results})

    def keeps(self, leg: Leg) -> bool:
        return False

    def _results_of(self, leg: Leg) -> list[Struct]:
        found: list[Struct] = getattr(leg.answer, self._results)
        return found

    def lost(self, api_key: int, request: Struct, leg: Leg) -> Struct | None:
        return codec.response_type(api_key)(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)


class LogDirs(Everywhere):
    """Folders of several brokers stand beside each other, so that each says whose it is."""

    def _results_of(self, leg: Leg) -> list[Struct]:
        assert leg.broker is not None
        return [result.copy(log_dir=f"broker-{leg.broker.id}:{result.log_dir}") for result in super()._results_of(leg)]


# -- leaders -------------------------------------------------------------------


@dataclass(frozen=True)
class Partitions:
    """How a message calls its topics, their partitions and a partition's number; without ``index`` the partitions
    are numbers themselves."""

    topics: str
    partitions: str
    index: str | None
    name: str = "name"
    error: str = "error_code"

    def key(self, topic: Struct) -> TopicKey:
        topic_id = getattr(topic, "topic_id", NO_ID)
        name: str = getattr(topic, self.name)
        return name if topic_id == NO_ID else topic_id

    def of(self, body: Struct) -> Iterator[tuple[Struct, Any, int]]:
        """Each topic, partition, and the partition's number."""
        for topic in getattr(body, self.topics):
            for partition in getattr(topic, self.partitions):
                yield topic, partition, getattr(partition, self.index) if self.index else partition


def _failure(api_key: int, request: Struct, asked: Partitions, told: Partitions, code: ErrorCode) -> Struct:
    """An answer that gives every partition of a request the same error."""
    answer = codec.response_type(api_key)
    topic_type = answer.type_of(told.topics)
    partition_type = topic_type.type_of(told.partitions)
    topics: dict[int, Struct] = {}
    for topic, _, index in asked.of(request):
        if id(topic) not in topics:
            topics[id(topic)] = topic_type(**{told.name: getattr(topic, asked.name)})
            if hasattr(topic, "topic_id"):
                topics[id(topic)].topic_id = topic.topic_id
        failed = partition_type(**{told.index or "": index, told.error: code})
        getattr(topics[id(topic)], told.partitions).append(failed)
    return answer(**{told.topics: list(topics.values())})


class AtLeaders(Route):
    """Each partition's leader."""

    def __init__(self, asked: Partitions, told: Partitions) -> None:
        self._asked = asked
        self._told = told

    def legs(self, request: Struct, lookup: Lookup) -> list[Leg]:
        asked = self._asked
        brokers: dict[Broker | None, dict[int, tuple[Struct, list[Any]]]] = {}
        for topic, partition, index in asked.of(request):
            leader = lookup.leader(asked.key(topic), index)
            topics = brokers.setdefault(leader, {})
            topics.setdefault(id(topic), (topic, []))[1].append(partition)
        if len(brokers) <= 1:
            return [Leg(next(iter(brokers), None))]
        return [
            Leg(
                broker,
                request.copy(**{asked.topics: [t.copy(**{asked.partitions: ps}) for t, ps in found.values()]}),
            )
            for broker, found in brokers.items()
        ]

    def answered(self, request: Struct, leg: Leg, lookup: Lookup) -> None:
        for topic in getattr(leg.answer, self._told.topics):
            for partition in getattr(topic, self._told.partitions):
                if partition.error_code:
                    self._failed(topic, partition, lookup)

    def _failed(self, topic: Struct, partition: Struct, lookup: Lookup) -> None:
        if partition.error_code in STALE_LEADER:
            lookup.topology.forget_topic(self._told.key(topic))

    def merged(self, request: Struct, legs: list[Leg]) -> Struct:
        told = self._told
        topics: dict[TopicKey, Struct] = {}
        for leg in legs:
            for topic in getattr(leg.answer, told.topics):
                known = topics.setdefault(told.key(topic), topic)
                if known is not topic:
                    getattr(known, told.partitions).extend(getattr(topic, told.partitions))
        return _with_summary(legs, **{told.topics: list(topics.values())})

    def lost(self, api_key: int, request: Struct, leg: Leg) -> Struct | None:
        return _failure(api_key, leg.body or request, self._asked, self._told, ErrorCode.NOT_LEADER_OR_FOLLOWER)


class Produce(AtLeaders):
    """Brokers tell the new leader and its address when there is one (KIP-951): a client must not go there."""

    def answered(self, request: Struct, leg: Leg, lookup: Lookup) -> None:
        super().answered(request, leg, lookup)
        assert leg.answer is not None
        leg.answer.node_endpoints = []

    def _failed(self, topic: Struct, partition: Struct, lookup: Lookup) -> None:
        super()._failed(topic, partition, lookup)
        partition.current_leader = type(partition.current_leader)()

    def keeps(self, leg: Leg) -> bool:
        return not any(_codes(leg.answer))

    def lost(self, api_key: int, request: Struct, leg: Leg) -> Struct | None:
        """As when a broker itself is lost: the client's further writes, which are on their way, must not overtake."""
        return None


# -- coordinators --------------------------------------------------------------


class AtCoordinator(Route):
    """A group's or a transaction's coordinator. ``partitions`` say where the answer's errors are, if not at its top."""

    def __init__(
        self, kind: int, key: Callable[[Struct], str | None], partitions: tuple[Partitions, Partitions] | None = None
    ) -> None:
        self._kind = kind
        self._key = key
        self._partitions = partitions

    def legs(self, request: Struct, lookup: Lookup) -> list[Leg]:
        key = self._key(request)
        return [Leg(lookup.coordinator(self._kind, key) if key is not None else None)]

    def answered(self, request: Struct, leg: Leg, lookup: Lookup) -> None:
        key = self._key(request)
        if key is not None and not _STALE_COORDINATOR.isdisjoint(_codes(leg.answer)):
            lookup.topology.forget_coordinator(self._kind, key)

    def lost(self, api_key: int, request: Struct, leg: Leg) -> Struct | None:
        if self._partitions is not None:
            return _failure(api_key, request, *self._partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return codec.response_type(api_key)(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)


class AtCoordinators(Route):
    """A list whose elements have a coordinator each. ``key`` is the field of an element of the answer; the request's
    elements have the same, or are the keys themselves."""

    def __init__(self, kind: int, items: str, results: str, key: str) -> None:
        self._kind = kind
        self._items = items
        self._results = results
        self._key = key

    def legs(self, request: Struct, lookup: Lookup) -> list[Leg]:
        brokers: dict[Broker | None, list[Any]] = {}
        for item in getattr(request, self._items):
            brokers.setdefault(lookup.coordinator(self._kind, self._key_of(item)), []).append(item)
        if len(brokers) <= 1:
            return [Leg(next(iter(brokers), None))]
        return [Leg(broker, request.copy(**{self._items: items})) for broker, items in brokers.items()]

    def _key_of(self, item: Any) -> str:
        found: str = item if isinstance(item, str) else getattr(item, self._key)
        return found

    def answered(self, request: Struct, leg: Leg, lookup: Lookup) -> None:
        for result in getattr(leg.answer, self._results):
            if not _STALE_COORDINATOR.isdisjoint(_codes(result)):
                lookup.topology.forget_coordinator(self._kind, self._key_of(result))

    def merged(self, request: Struct, legs: list[Leg]) -> Struct:
        results = [result for leg in legs for result in getattr(leg.answer, self._results)]
        return _with_summary(legs, **{self._results: results})

    def lost(self, api_key: int, request: Struct, leg: Leg) -> Struct | None:
        answer = codec.response_type(api_key)
        result = answer.type_of(self._results)
        if "error_code" not in {field.name for field in result._fields}:
            return None
        items = getattr(leg.body or request, self._items)
        failed = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return answer(**{self._results: [result(**{self._key: self._key_of(i), "error_code": failed}) for i in items]})


class ByVersion(Route):
    """A request whose newer versions are of another form."""

    def __init__(self, has_list: Callable[[Struct], Any], several: Route, one: Route) -> None:
        self._has_list = has_list
        self._several = several
        self._one = one

    def _route(self, request: Struct) -> Route:
        return self._several if self._has_list(request) else self._one

    def legs(self, request: Struct, lookup: Lookup) -> list[Leg]:
        return self._route(request).legs(request, lookup)

    def answered(self, request: Struct, leg: Leg, lookup: Lookup) -> None:
        self._route(request).answered(request, leg, lookup)

    def merged(self, request: Struct, legs: list[Leg]) -> Struct:
        return self._route(request).merged(request, legs)

    def lost(self, api_key: int, request: Struct, leg: Leg) -> Struct | None:
        return self._route(request).lost(api_key, request, leg)
