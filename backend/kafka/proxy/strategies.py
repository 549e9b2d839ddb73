"""The ways that requests are routed: to any broker, the controller, all brokers, leaders or coordinators."""

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from typing import Any

from backend.domain.numbers import small_number
from backend.kafka.proxy.rejected_writes import Place
from backend.kafka.proxy.routing import STALE_LEADER, Leg, Lookup, Route, error_codes, with_summary
from backend.kafka.proxy.topology import NO_ID, Broker, TopicKey
from backend.kafka.wire import codec
from backend.kafka.wire.api import ApiKey, ErrorCode
from backend.kafka.wire.structs import Struct

_BROKER_RESOURCES = (4, 8)
"""Types of configuration resources that belong to one broker: BROKER and BROKER_LOGGER."""
_REPEATED = {*STALE_LEADER, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}
"""Errors after which a client repeats a write, since it was not its partition's leader that got it, or too early."""
_STALE_COORDINATOR = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}


# -- any broker ----------------------------------------------------------------


class Anywhere(Route):
    """Any broker answers, or forwards to the controller."""

    reads_request = False
    reads_answer = False

    def legs(self, request: Struct, lookup: Lookup) -> list[Leg]:
        return [Leg(None)]


class AtController(Route):
    """The controller."""

    def legs(self, request: Struct, lookup: Lookup) -> list[Leg]:
        return [Leg(lookup.controller())]

    def answered(self, request: Struct, leg: Leg, lookup: Lookup) -> None:
        if ErrorCode.NOT_CONTROLLER in error_codes(leg.answer):
            lookup.topology.forget_controller()


class OfBrokers(Route):
    """Configurations: a broker's own goes to that broker, named by its real id; any other goes to any broker."""

    def __init__(self, results: str) -> None:
        self._results = results

    def legs(self, request: Struct, lookup: Lookup) -> list[Leg]:
        by_broker: dict[Broker | None, list[Struct]] = {}
        for resource in request.resources:
            named = small_number(resource.resource_name) if resource.resource_type in _BROKER_RESOURCES else None
            broker = None if named is None else lookup.broker(named)
            by_broker.setdefault(broker, []).append(resource)
        if len(by_broker) <= 1:
            return [Leg(next(iter(by_broker), None))]
        return [Leg(broker, request.copy(resources=resources)) for broker, resources in by_broker.items()]

    def merged(self, request: Struct, legs: list[Leg]) -> Struct:
        results = [result for leg in legs for result in getattr(leg.answer, self._results)]
        return with_summary(legs, **{self._results: results})


# -- every broker --------------------------------------------------------------


class Everywhere(Route):
    """Each proxy sends the request to the brokers that it represents, so that all proxies together reach each once."""

    def __init__(self, results: str) -> None:
        self._results = results

    def legs(self, request: Struct, lookup: Lookup) -> list[Leg]:
        return [Leg(broker, request) for broker in lookup.own_brokers()]

    def merged(self, request: Struct, legs: list[Leg]) -> Struct:
        results = [result for leg in legs for result in self._results_of(leg)]
        return with_summary(legs, **{self._results: results})

    def keeps(self, leg: Leg) -> bool:
        return False

    def _results_of(self, leg: Leg) -> list[Struct]:
        results: list[Struct] = getattr(leg.answer, self._results)
        return results

    def lost(self, api_key: int, request: Struct, leg: Leg) -> Struct | None:
        return codec.response_type(api_key)(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)


class LogDirs(Everywhere):
    """Prefixes log directories with their broker, since those of several brokers are listed together."""

    def _results_of(self, leg: Leg) -> list[Struct]:
        assert leg.broker is not None
        return [result.copy(log_dir=f"broker-{leg.broker.id}:{result.log_dir}") for result in super()._results_of(leg)]


# -- leaders -------------------------------------------------------------------


@dataclass(frozen=True)
class Partitions:
    """The names of a message's fields for topics, partitions and a partition's number. Without ``index`` the partitions
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


def _failure(
    api_key: int, request: Struct, request_fields: Partitions, response_fields: Partitions, code: ErrorCode
) -> Struct:
    """An answer with the same error for every partition of a request."""
    answer = codec.response_type(api_key)
    topic_type = answer.type_of(response_fields.topics)
    partition_type = topic_type.type_of(response_fields.partitions)
    topics: dict[int, Struct] = {}
    for topic, _, index in request_fields.of(request):
        if id(topic) not in topics:
            topics[id(topic)] = topic_type(**{response_fields.name: getattr(topic, request_fields.name)})
            if hasattr(topic, "topic_id"):
                topics[id(topic)].topic_id = topic.topic_id
        failed = partition_type(**{response_fields.index or "": index, response_fields.error: code})
        getattr(topics[id(topic)], response_fields.partitions).append(failed)
    return answer(**{response_fields.topics: list(topics.values())})


class AtLeaders(Route):
    """The leader of each partition."""

    def __init__(self, request_fields: Partitions, response_fields: Partitions) -> None:
        self._request_fields = request_fields
        self._response_fields = response_fields

    def legs(self, request: Struct, lookup: Lookup) -> list[Leg]:
        fields = self._request_fields
        brokers: dict[Broker | None, dict[int, tuple[Struct, list[Any]]]] = {}
        for topic, partition, index in fields.of(request):
            leader = lookup.leader(fields.key(topic), index)
            topics = brokers.setdefault(leader, {})
            topics.setdefault(id(topic), (topic, []))[1].append(partition)
        if len(brokers) <= 1:
            return [Leg(next(iter(brokers), None))]
        return [
            Leg(
                broker,
                request.copy(**{fields.topics: [t.copy(**{fields.partitions: ps}) for t, ps in by_topic.values()]}),
            )
            for broker, by_topic in brokers.items()
        ]

    def answered(self, request: Struct, leg: Leg, lookup: Lookup) -> None:
        for topic in getattr(leg.answer, self._response_fields.topics):
            for partition in getattr(topic, self._response_fields.partitions):
                if partition.error_code:
                    self._failed(topic, partition, lookup)

    def _failed(self, topic: Struct, partition: Struct, lookup: Lookup) -> None:
        if partition.error_code in STALE_LEADER:
            lookup.topology.forget_topic(self._response_fields.key(topic))

    def merged(self, request: Struct, legs: list[Leg]) -> Struct:
        fields = self._response_fields
        topics: dict[TopicKey, Struct] = {}
        for leg in legs:
            for topic in getattr(leg.answer, fields.topics):
                known = topics.setdefault(fields.key(topic), topic)
                if known is not topic:
                    getattr(known, fields.partitions).extend(getattr(topic, fields.partitions))
        return with_summary(legs, **{fields.topics: list(topics.values())})

    def lost(self, api_key: int, request: Struct, leg: Leg) -> Struct | None:
        return _failure(
            api_key, leg.body or request, self._request_fields, self._response_fields, ErrorCode.NOT_LEADER_OR_FOLLOWER
        )


class Produce(AtLeaders):
    """Removes the new leader and its address, which brokers add to some errors (KIP-951): clients must not connect
    to it. What follows a rejected write goes to no broker before that one is repeated."""

    def legs(self, request: Struct, lookup: Lookup) -> list[Leg]:
        if not lookup.rejected:
            return super().legs(request, lookup)
        fields = self._request_fields
        places = {id(part): ((fields.key(topic), index), part) for topic, part, index in fields.of(request)}
        early = {one for one, (place, part) in places.items() if lookup.rejected.precede(place, part.records)}
        if not early:
            return super().legs(request, lookup)
        rejected, others = self._part(request, early), self._part(request, places.keys() - early)
        legs = [Leg(None, rejected, super().lost(ApiKey.PRODUCE, rejected, Leg(None)))]
        if others.topic_data:
            legs += [Leg(leg.broker, leg.body or others) for leg in super().legs(others, lookup)]
        if lookup.is_complete:  # otherwise this is called again
            for place, part in map(places.__getitem__, early):
                lookup.rejected.add(place, part.records, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return legs

    def _part(self, request: Struct, partitions: Set[int]) -> Struct:
        """The request with only those of its partitions that have these identities (``id``)."""
        topics = [
            topic.copy(partition_data=[part for part in topic.partition_data if id(part) in partitions])
            for topic in request.topic_data
        ]
        return request.copy(topic_data=[topic for topic in topics if topic.partition_data])

    def answered(self, request: Struct, leg: Leg, lookup: Lookup) -> None:
        super().answered(request, leg, lookup)
        assert leg.answer is not None
        leg.answer.node_endpoints = []
        fields = self._response_fields
        rejected = {
            (fields.key(topic), index): part
            for topic, part, index in fields.of(leg.answer)
            if part.error_code in _REPEATED
        }
        if rejected:
            self._note_rejected(leg.body or request, rejected, lookup)

    def _note_rejected(self, request: Struct, results: dict[Place, Struct], lookup: Lookup) -> None:
        fields = self._request_fields
        for topic, part, index in fields.of(request):
            result = results.get((fields.key(topic), index))
            if result is not None:
                result.error_code = lookup.rejected.add((fields.key(topic), index), part.records, result.error_code)

    def _failed(self, topic: Struct, partition: Struct, lookup: Lookup) -> None:
        super()._failed(topic, partition, lookup)
        partition.current_leader = type(partition.current_leader)()

    def keeps(self, leg: Leg) -> bool:
        return not any(error_codes(leg.answer))

    def lost(self, api_key: int, request: Struct, leg: Leg) -> Struct | None:
        """Closes the connection, as a lost broker would: writes that are already under way must not overtake the
        retry."""
        return None


# -- coordinators --------------------------------------------------------------


class AtCoordinator(Route):
    """A group's or a transaction's coordinator. ``partitions`` locate the answer's errors unless there is one at the
    top."""

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
        if key is not None and not _STALE_COORDINATOR.isdisjoint(error_codes(leg.answer)):
            lookup.topology.forget_coordinator(self._kind, key)

    def lost(self, api_key: int, request: Struct, leg: Leg) -> Struct | None:
        if self._partitions is not None:
            return _failure(api_key, request, *self._partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return codec.response_type(api_key)(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)


class AtCoordinators(Route):
    """A list whose elements may have different coordinators. ``key`` is the field with the key in the answer's
    elements; the request's elements have the same field, or are the keys themselves."""

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
        key: str = item if isinstance(item, str) else getattr(item, self._key)
        return key

    def answered(self, request: Struct, leg: Leg, lookup: Lookup) -> None:
        for result in getattr(leg.answer, self._results):
            if not _STALE_COORDINATOR.isdisjoint(error_codes(result)):
                lookup.topology.forget_coordinator(self._kind, self._key_of(result))

    def merged(self, request: Struct, legs: list[Leg]) -> Struct:
        results = [result for leg in legs for result in getattr(leg.answer, self._results)]
        return with_summary(legs, **{self._results: results})

    def lost(self, api_key: int, request: Struct, leg: Leg) -> Struct | None:
        answer = codec.response_type(api_key)
        result = answer.type_of(self._results)
        if "error_code" not in {field.name for field in result._fields}:
            return None
        items = getattr(leg.body or request, self._items)
        failed = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return answer(**{self._results: [result(**{self._key: self._key_of(i), "error_code": failed}) for i in items]})


class ByVersion(Route):
    """A request whose newer versions have another form: a list instead of one element."""

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
