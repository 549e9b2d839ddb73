"""Answers that name brokers: clients read of proxies instead, and the proxy learns from what brokers said."""

from collections.abc import Iterable, Mapping

from backend.kafka.proxy.config import ProxyNode
from backend.kafka.proxy.routing import Anywhere, Leg, Lookup
from backend.kafka.wire.api import ErrorCode
from backend.kafka.wire.codec import Struct


class Addressed(Anywhere):
    """A question that any broker answers, with addresses."""

    reads_answer = True
    is_repeatable = True

    def keeps(self, leg: Leg) -> bool:
        return False


Proxies = Mapping[int, ProxyNode]
"""The proxy that stands for each broker, by the broker's id."""


def _proxy_id(broker_id: int, proxies: Proxies) -> int:
    node = proxies.get(broker_id)
    return node.broker_id if node is not None else -1


def _proxy_ids(broker_ids: Iterable[int], proxies: Proxies) -> list[int]:
    """Each proxy once."""
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
        found = getattr(partition, field)
        if found:
            setattr(partition, field, _proxy_ids(found, proxies))
    # A proxy stands for several brokers: as long as one of them is there, it is.
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
        if answer.error_code == ErrorCode.NONE and answer.endpoint_type == 1:  # brokers, not controllers
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
    """The controllers are named by their ids; where they listen is not for clients of the proxy."""

    def answered(self, request: Struct, leg: Leg, lookup: Lookup) -> None:
        assert leg.answer is not None
        leg.answer.nodes = []


class FindCoordinator(Addressed):
    reads_request = True

    def answered(self, request: Struct, leg: Leg, lookup: Lookup) -> None:
        answer = leg.answer
        assert answer is not None
        if answer.coordinators:
            for found in answer.coordinators:
                self._replace(request.key_type, found.key, found, lookup)
        elif request.key:
            self._replace(request.key_type, request.key, answer, lookup)

    @staticmethod
    def _replace(kind: int, key: str, found: Struct, lookup: Lookup) -> None:
        learn_coordinator(kind, key, found, lookup)
        if found.error_code == ErrorCode.NONE:
            node = lookup.proxies().get(found.node_id, lookup.nodes.local)
            found.node_id = node.broker_id
            found.host, found.port = node.address_for_clients.host, node.address_for_clients.port


def learn_coordinator(kind: int, key: str, found: Struct, lookup: Lookup) -> None:
    """From a FindCoordinator response as the broker sent it."""
    if found.error_code == ErrorCode.NONE:
        lookup.topology.learn_coordinator(kind, key, found.node_id)
    else:
        lookup.topology.forget_coordinator(kind, key)
