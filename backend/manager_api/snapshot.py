"""The published configuration in Redis, without secrets, and the channel its changes are announced on.

The manager writes it on every publish; a data plane that starts while the manager is unavailable reads it.
"""

import logging
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

import msgspec
from redis.exceptions import RedisError

from backend.domain import json
from backend.domain.inputs.filter import FilterInput
from backend.domain.pipeline import DEFAULT_INPUT, PipelineSnapshot
from backend.domain.registry import type_name
from backend.network.redis_client import redis_client

log = logging.getLogger(__name__)

PIPELINES = "headrace:config:pipelines"
"""Hash: pipeline id to PipelineSnapshot as JSON. No TTL."""

REVISIONS = "headrace:config:revisions"
"""Hash: pipeline id to the revision that its entry was written from, empty when that is not known. Its fields are those
of PIPELINES, and unreadable pipelines."""

LARGEST_PIPELINE = 1024 * 1024
"""Bytes of a configuration, so that every pipeline fits into one gRPC message."""

INGEST_KEYS = "headrace:config:ingest-keys"
"""Hash: SHA-256 of a key to IngestKey as JSON. No TTL."""

COMPLETE = "headrace:config:complete"
"""Exists once everything has been written. In a Redis that was emptied since, what is announced is not everything until
the manager has written all of it again."""

CHANGES = "headrace:config:changes"
"""Pub/sub channel; a message is ``pipeline:<id>``, ``key:<hash>`` or ``connector:<id>``."""


@dataclass(frozen=True, slots=True)
class IngestKey:
    """An API key that may post messages to its workspace's pipelines. ``expires_at`` is Unix time or 0."""

    hash: str
    workspace_id: UUID
    expires_at: int

    def to_json(self) -> bytes:
        return json.dumps([self.hash, self.workspace_id, self.expires_at])

    @classmethod
    def from_json(cls, data: bytes) -> "IngestKey":
        hashed, workspace_id, expires_at = json.loads(data)
        return cls(hashed, UUID(workspace_id), expires_at)


def announce(kind: Literal["pipeline", "key"], name: str, entry: bytes | None) -> None:
    """Writes a pipeline or key into the snapshot, or removes it without an ``entry``, and announces the change.

    While Redis is unavailable the change only takes longer: every few seconds the manager compares what it has sent
    with the database, and every minute the snapshot.
    """
    stored = PIPELINES if kind == "pipeline" else INGEST_KEYS
    try:
        with redis_client().pipeline() as batch:
            if entry is None:
                batch.hdel(stored, name)
            else:
                batch.hset(stored, name, entry)
            if kind == "pipeline":
                batch.hset(REVISIONS, name, b"")
            batch.publish(CHANGES, f"{kind}:{name}")
            batch.execute()
    except RedisError as error:
        log.warning(
            "The data plane receives the %s %s only within seconds, because Redis failed: %s", kind, name, error
        )


def announce_connector(connector_id: UUID) -> None:
    """Announces that a connection or its secrets have changed, which the snapshot does not hold."""
    try:
        redis_client().publish(CHANGES, f"connector:{connector_id}")
    except RedisError as error:
        log.warning("The data plane notices a change of connector %s later: Redis failed: %s", connector_id, error)


class PublishedPipeline:
    """A published pipeline as it was received, of which only a few fields have been read. It takes a fraction of the
    memory of its PipelineSnapshot."""

    __slots__ = ("accepting", "data", "is_filter", "version", "workspace_id")

    def __init__(self, data: bytes) -> None:
        """Raises msgspec.ValidationError when the data is no snapshot at all; ``load`` checks the rest."""
        head = _HEAD.decode(data)
        self.data = data
        self.workspace_id = head.workspace_id
        self.version = head.version
        self.accepting = head.accepting
        self.is_filter = head.config.input.type == type_name(FilterInput)

    def load(self) -> PipelineSnapshot:
        """Raises ValidationError when another release wrote what this one cannot read."""
        return load_pipeline(self.data)


class _InputHead(msgspec.Struct):
    type: str = DEFAULT_INPUT.type


class _ConfigHead(msgspec.Struct):
    input: _InputHead = msgspec.field(default_factory=_InputHead)


class _Head(msgspec.Struct):
    workspace_id: UUID
    version: int
    accepting: bool
    config: _ConfigHead


_HEAD = msgspec.json.Decoder(_Head)


def load_pipeline(data: bytes) -> PipelineSnapshot:
    """Raises ValidationError when another release wrote what this one cannot read."""
    return PipelineSnapshot.model_validate_json(data)


def dump_pipeline(snapshot: PipelineSnapshot) -> bytes:
    return snapshot.model_dump_json().encode()
