"""Rendezvous hashing: every node computes the same choice, and when a node leaves only what it had moves."""

from collections.abc import Iterable
from hashlib import blake2b


def weight(key: str, node: int) -> bytes:
    """How strongly the key belongs to the node; the node with the greatest weight has it."""
    return blake2b(f"{key}|{node}".encode(), digest_size=8).digest()


def chosen(key: str, nodes: Iterable[int]) -> int:
    """The node that has the key. Raises ValueError when there are no nodes."""
    return max(nodes, key=lambda node: weight(key, node))
