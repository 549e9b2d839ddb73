"""The published configuration in Redis, without secrets, and the channel its changes are announced on.

The manager writes it on every publish; a data plane that starts while the manager is away reads it.
"""

from dataclasses import dataclass
from uuid import UUID

from backend.domain import json
from backend.domain.pipeline import PipelineSnapshot

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


def load_pipeline(data: bytes) -> PipelineSnapshot:
    """Raises ValidationError when another release wrote what this one cannot read."""
    return PipelineSnapshot.model_validate_json(data)


def dump_pipeline(snapshot: PipelineSnapshot) -> bytes:
    return snapshot.model_dump_json().encode()
