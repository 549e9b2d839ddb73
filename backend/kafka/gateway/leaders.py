"""Checks that a request has come to the right node, with what the client knows of the partition."""

from backend.kafka.gateway.context import Context
from backend.kafka.gateway.errors import KafkaError
from backend.kafka.gateway.ports import Collection, Ends
from backend.kafka.wire.api import ErrorCode


def check_leader(context: Context, collection: Collection, partition: int) -> None:
    """Raises KafkaError when another node serves the partition."""
    if context.nodes.leader(collection, partition) != context.nodes.local:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def check_epoch(known: int, ends: Ends) -> None:
    """Raises KafkaError when the client's leader epoch is not the present one; -1 stands for none."""
    if 0 <= known < ends.epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    if known > ends.epoch:
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
