"""The published configuration in Redis, without secrets, and the channel its changes are announced on.

The manager writes it on every publish; a data plane that starts while the manager is unavailable reads it.
"""

import logging
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from redis.exceptions import RedisError

from backend.domain import json
from backend.domain.pipeline import PipelineSnapshot
from backend.network.redis_client import redis_client

log = logging.getLogger(__name__)

PIPELINES = "headrace:config:pipelines"
"""Hash: pipeline id to PipelineSnapshot as JSON. No TTL."""

INGEST_KEYS = "headrace:config:ingest-keys"
"""Hash: SHA-256 of a key to IngestKey as JSON. No TTL."""

CHANGES = "headrace:config:changes"
"""Pub/sub channel; a message is ``pipeline:<id>`` or ``key:<hash>``."""


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

    While Redis is unavailable the change only takes longer: every minute the manager sends the data plane the
    whole configuration, and rewrites the snapshot.
    """
    stored = PIPELINES if kind == "pipeline" else INGEST_KEYS
    try:
        with redis_client().pipeline() as batch:
            if entry is None:
                batch.hdel(stored, name)
            else:
                batch.hset(stored, name, entry)
            batch.publish(CHANGES, f"{kind}:{name}")
            batch.execute()
    except RedisError as error:
        log.warning(
            "The data plane receives the %s %s only within a minute, because Redis failed: %s", kind, name, error
        )


def load_pipeline(data: bytes) -> PipelineSnapshot:
    """Raises ValidationError when another release wrote what this one cannot read."""
    return PipelineSnapshot.model_validate_json(data)


def dump_pipeline(snapshot: PipelineSnapshot) -> bytes:
    return snapshot.model_dump_json().encode()
