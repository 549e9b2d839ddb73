"""What is published, in the memory of a data-plane process."""

import logging
import time
from collections import defaultdict
from collections.abc import Collection
from uuid import UUID

import msgspec
from pydantic import ValidationError

from backend.domain.idle_cache import IdleCache
from backend.domain.pipeline import PipelineSnapshot
from backend.manager_api.snapshot import IngestKey, PublishedPipeline

log = logging.getLogger(__name__)

_IDLE_SECONDS = 3600.0


class WorkspaceFilters:
    """The accepting pipelines of a workspace whose input is a filter. ``revision`` differs after each change."""

    def __init__(self) -> None:
        self.pipeline_ids: set[str] = set()
        self.revision = 0


class PublishedConfiguration:
    """The published pipelines and keys. A pipeline is parsed when it is first used, and again after an hour without
    use: of tens of thousands, a process needs few."""

    def __init__(self) -> None:
        self._pipelines: dict[str, PublishedPipeline] = {}
        self._snapshots: IdleCache[str, PipelineSnapshot] = IdleCache(_IDLE_SECONDS)
        self._keys: dict[str, IngestKey] = {}
        self._filters: defaultdict[UUID, WorkspaceFilters] = defaultdict(WorkspaceFilters)
        self._revision = 0

    def pipeline(self, pipeline_id: str) -> PipelineSnapshot | None:
        """The published version, or None."""
        snapshot = self._snapshots.get(pipeline_id)
        if snapshot is None:
            published = self._pipelines.get(pipeline_id)
            if published is None:
                return None
            try:
                snapshot = self._snapshots[pipeline_id] = published.load()
            except ValidationError as error:
                # It must not affect the others.
                log.error("Pipeline %s cannot be read by this release: %s", pipeline_id, error)
                self.remove(pipeline_id)
        return snapshot

    def version_of(self, pipeline_id: str) -> int | None:
        """The number of the published version."""
        published = self._pipelines.get(pipeline_id)
        return published.version if published is not None else None

    def key(self, hashed: str) -> IngestKey | None:
        """The unexpired key with that SHA-256, or None."""
        key = self._keys.get(hashed)
        if key is None or (key.expires_at and key.expires_at <= time.time()):
            return None
        return key

    def filters(self, workspace_id: UUID) -> WorkspaceFilters | None:
        """None when the workspace has no filters."""
        return self._filters.get(workspace_id)

    def put(self, pipeline_id: str, data: bytes) -> bool:
        """Returns whether anything changed."""
        held = self._pipelines.get(pipeline_id)
        if held is not None and held.data == data:
            return False
        self.remove(pipeline_id)
        try:
            published = PublishedPipeline(data)
        except msgspec.DecodeError as error:
            log.error("Pipeline %s cannot be read by this release: %s", pipeline_id, error)
            return True
        self._pipelines[pipeline_id] = published
        if published.is_filter and published.accepting:
            filters = self._filters[published.workspace_id]
            filters.pipeline_ids.add(pipeline_id)
            self._changed(filters)
        return True

    def remove(self, pipeline_id: str) -> None:
        removed = self._pipelines.pop(pipeline_id, None)
        self._snapshots.discard(pipeline_id)
        filters = self._filters.get(removed.workspace_id) if removed is not None else None
        if removed is None or filters is None or pipeline_id not in filters.pipeline_ids:
            return
        filters.pipeline_ids.remove(pipeline_id)
        self._changed(filters)
        if not filters.pipeline_ids:
            del self._filters[removed.workspace_id]

    def put_key(self, key: IngestKey) -> None:
        self._keys[key.hash] = key

    def remove_key(self, hashed: str) -> None:
        self._keys.pop(hashed, None)

    def keep_only(self, pipeline_ids: Collection[str], keys: Collection[str]) -> list[str]:
        """Removes all others; returns the pipelines that it removed."""
        removed = [pipeline_id for pipeline_id in self._pipelines if pipeline_id not in pipeline_ids]
        for pipeline_id in removed:
            self.remove(pipeline_id)
        self._keys = {hashed: key for hashed, key in self._keys.items() if hashed in keys}
        return removed

    def _changed(self, filters: WorkspaceFilters) -> None:
        self._revision += 1
        filters.revision = self._revision
