"""Answers that name brokers: clients get the proxies' addresses instead, and the topology learns the brokers'."""

from collections.abc import Iterable, Mapping

from backend.kafka.proxy.config import ProxyNode
from backend.kafka.proxy.routing import Leg, Lookup
from backend.kafka.proxy.strategies import Anywhere
from backend.kafka.wire.api import ErrorCode
from backend.kafka.wire.structs import Struct


class Addressed(Anywhere):
    """A request that any broker can answer, whose answer contains addresses."""

    reads_answer = True
    is_repeatable = True

    def keeps(self, leg: Leg) -> bool:
        return False


Proxies = Mapping[int, ProxyNode]
"""The proxy that represents each broker, by the broker's id."""


def _proxy_id(broker_id: int, proxies: Proxies) -> int:
    node = proxies.get(broker_id)
    return node.broker_id if node is not None else -1


def _proxy_ids(broker_ids: Iterable[int], proxies: Proxies) -> list[int]:
    """The ids of the proxies that represent these brokers, without duplicates."""
    return list(dict.fromkeys(proxies[broker_id].broker_id for broker_id in broker_ids if broker_id in proxies))


def _nodes(kind: type[Struct], id_field: str, lookup: Lookup) -> list[Struct]:
    return [
        kind(
            **{id_field: node.broker_id},
            host=node.address_for_clients.host,
            port=node.address_for_clients.port,
            rack=node.rack,
        )
        for node in lookup.nodes.up()
    ]


def _replace_replicas(partition: Struct, proxies: Proxies, fields: Iterable[str]) -> None:
    partition.leader_id = _proxy_id(partition.leader_id, proxies)
    for field in fields:
        broker_ids = getattr(partition, field)
        if broker_ids:
            setattr(partition, field, _proxy_ids(broker_ids, proxies))
    # A proxy represents several brokers and is online as long as one of them is.
    partition.offline_replicas = []


class Metadata(Addressed):
    def answered(self, request: Struct, leg: Leg, lookup: Lookup) -> None:
        answer = leg.answer
        assert answer is not None
        lookup.topology.learn_metadata(answer)
        proxies = lookup.proxies()
        answer.controller_id = _proxy_id(answer.controller_id, proxies)
        answer.brokers = _nodes(type(answer).type_of("brokers"), "node_id", lookup)
        for topic in answer.topics:
            for partition in topic.partitions:
                _replace_replicas(partition, proxies, ("replica_nodes", "isr_nodes"))


class DescribeCluster(Addressed):
    def answered(self, request: Struct, leg: Leg, lookup: Lookup) -> None:
        answer = leg.answer
        assert answer is not None
        if answer.error_code == ErrorCode.NONE and answer.endpoint_type == 1:  # 1: brokers; 2: controllers
            answer.controller_id = _proxy_id(answer.controller_id, lookup.proxies())
            answer.brokers = _nodes(type(answer).type_of("brokers"), "broker_id", lookup)


class DescribeTopicPartitions(Addressed):
    def answered(self, request: Struct, leg: Leg, lookup: Lookup) -> None:
        assert leg.answer is not None
        fields = ("replica_nodes", "isr_nodes", "eligible_leader_replicas", "last_known_elr")
        proxies = lookup.proxies()
        for topic in leg.answer.topics:
            for partition in topic.partitions:
                _replace_replicas(partition, proxies, fields)


class DescribeQuorum(Addressed):
    """Controllers keep their ids, but their listeners are removed, since clients of the proxy cannot reach them."""

    def answered(self, request: Struct, leg: Leg, lookup: Lookup) -> None:
        assert leg.answer is not None
        leg.answer.nodes = []


class FindCoordinator(Addressed):
    reads_request = True

    def answered(self, request: Struct, leg: Leg, lookup: Lookup) -> None:
        answer = leg.answer
        assert answer is not None
        if answer.coordinators:
            for coordinator in answer.coordinators:
                self._replace(request.key_type, coordinator.key, coordinator, lookup)
        elif request.key:
            self._replace(request.key_type, request.key, answer, lookup)

    @staticmethod
    def _replace(kind: int, key: str, coordinator: Struct, lookup: Lookup) -> None:
        learn_coordinator(kind, key, coordinator, lookup)
        if coordinator.error_code == ErrorCode.NONE:
            node = lookup.proxies().get(coordinator.node_id, lookup.nodes.local)
            coordinator.node_id = node.broker_id
            coordinator.host, coordinator.port = node.address_for_clients.host, node.address_for_clients.port


def learn_coordinator(kind: int, key: str, coordinator: Struct, lookup: Lookup) -> None:
    """Updates the topology from a FindCoordinator response, before its addresses are replaced."""
    if coordinator.error_code == ErrorCode.NONE:
        lookup.topology.learn_coordinator(kind, key, coordinator.node_id)
    else:
        lookup.topology.forget_coordinator(kind, key)
