"""The data plane's copy of the configuration."""

import asyncio
import itertools
import logging
import random
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

import grpc
from redis.exceptions import RedisError

from backend.domain import json
from backend.domain.connector import RuntimeConnector
from backend.domain.idle_cache import IdleCache
from backend.domain.pipeline import PipelineSnapshot, RuntimeOutput
from backend.manager_api import snapshot as stored
from backend.manager_api.generated import manager_pb2 as pb
from backend.manager_api.generated.manager_pb2_grpc import ManagerStub
from backend.manager_api.published import PublishedConfiguration, WorkspaceFilters
from backend.manager_api.snapshot import IngestKey
from backend.network import tasks
from backend.network.redis_client import async_redis_client

log = logging.getLogger(__name__)

T = TypeVar("T")
_Version = tuple[str, int]
"""A pipeline's id and the number of one of its versions."""

_CALL_SECONDS = 5.0
_RUNTIME_FRESH_SECONDS = 60.0
"""Changes are pushed; this is for what is changed elsewhere, such as a secret in Vault."""
_RETRY_SECONDS = 2.0
_CONNECTORS = 50
"""How many changed connectors are fetched at a time: each may take a request to Vault."""
_VERSION_IDLE_SECONDS = 3600.0
_SILENCE_SECONDS = 150.0
"""The manager sends an event every minute; a stream that is silent for longer is dead."""
_SCANNED = 500
"""How many entries are read from Redis at a time."""
_CHANNEL_OPTIONS = [("grpc.max_receive_message_length", 16 * 1024 * 1024)]


class ConfigUnavailableError(Exception):
    """The manager cannot provide this configuration now; a later attempt may succeed."""


class UnknownPipelineError(LookupError):
    """The pipeline, or that version of it, does not exist or cannot be read."""


@dataclass(frozen=True, slots=True)
class RuntimePipeline:
    """One version of a pipeline with the connectors that it uses. Holds secrets: memory only."""

    snapshot: PipelineSnapshot
    connectors: dict[UUID, RuntimeConnector]
    outputs: tuple[RuntimeOutput, ...]
    workspace_id: str

    @classmethod
    def of(cls, snapshot: PipelineSnapshot, connectors: dict[UUID, RuntimeConnector]) -> "RuntimePipeline":
        return cls(
            snapshot,
            connectors,
            tuple(RuntimeOutput(config=o, connector=connectors[o.connector]) for o in snapshot.config.outputs),
            str(snapshot.workspace_id),
        )

    def with_connectors(self, present: Mapping[UUID, RuntimeConnector]) -> "RuntimePipeline":
        """With these connectors as they are now, except for what was registered in their systems for this pipeline;
        itself when that makes no difference."""
        connectors = {
            pk: present[pk].model_copy(update={"registered": held.registered}) if pk in present else held
            for pk, held in self.connectors.items()
        }
        return self if connectors == self.connectors else RuntimePipeline.of(self.snapshot, connectors)

    @property
    def errors(self) -> set[str]:
        """Why connectors cannot be used."""
        return {connector.error for connector in self.connectors.values()} - {""}


class ConfigClient:
    """Holds the published pipelines in memory and follows their changes.

    It starts from the manager's stream, or from the snapshot in Redis while the manager is
    unavailable, and continues with what it has while both are.
    """

    def __init__(
        self,
        *,
        manager_address: str,
        service_token: str,
        redis_url: str,
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        if credentials is None:
            self._channel = grpc.aio.insecure_channel(manager_address, _CHANNEL_OPTIONS)
        else:
            self._channel = grpc.aio.secure_channel(manager_address, credentials, _CHANNEL_OPTIONS)
        self._stub = ManagerStub(self._channel)  # type: ignore[no-untyped-call]
        self._metadata = (("authorization", f"Bearer {service_token}"),)
        self._redis_url = redis_url
        self._published = PublishedConfiguration()
        self._arrived: tuple[set[str], set[str]] | None = None
        """The pipelines and keys that the stream has named, until its snapshot is complete."""
        self._versions: IdleCache[_Version, PipelineSnapshot] = IdleCache(_VERSION_IDLE_SECONDS)
        self._runtime: IdleCache[_Version, tuple[float, RuntimePipeline]] = IdleCache(_VERSION_IDLE_SECONDS)
        self._fetches: dict[tuple[Any, _Version], asyncio.Task[Any]] = {}
        self._loaded = asyncio.Event()
        self._outdated: set[UUID] = set()
        """Connectors that have changed and are to be fetched."""
        self._refreshing: asyncio.Task[None] | None = None
        self._connectors_changed = asyncio.Event()
        self._changes = 0
        """How often something that a runtime configuration is made of has changed."""
        self._task: asyncio.Task[None] | None = None
        self.connected = False
        """Whether the manager's stream is open now."""

    async def start(self, timeout: float = 10.0) -> None:
        """Begins to follow changes until ``close``. Returns once a configuration is loaded.

        Raises ConfigUnavailableError when neither the manager nor Redis provided one in time; it goes on asking.
        """
        self._task = asyncio.create_task(self._follow())
        try:
            async with asyncio.timeout(timeout):
                await self._loaded.wait()
        except TimeoutError:
            raise ConfigUnavailableError(
                "Neither the manager nor Redis answered with the configuration; check that both are running."
            ) from None

    async def close(self) -> None:
        await tasks.cancel(*(task for task in (self._task, self._refreshing) if task is not None))
        await self._channel.close(None)

    @property
    def loaded(self) -> bool:
        return self._loaded.is_set()

    def pipeline(self, pipeline_id: str) -> PipelineSnapshot | None:
        """The published version, or None."""
        return self._published.pipeline(pipeline_id)

    def filters(self, workspace_id: UUID) -> WorkspaceFilters | None:
        """The workspace's published filters, or None when it has none."""
        return self._published.filters(workspace_id)

    def key(self, hashed: str) -> IngestKey | None:
        """The unexpired key with that SHA-256, or None."""
        return self._published.key(hashed)

    async def version(self, pipeline_id: str, version: int) -> PipelineSnapshot:
        """A version, published or past. Raises UnknownPipelineError, ConfigUnavailableError."""
        if self._published.version_of(pipeline_id) == version:
            current = self._published.pipeline(pipeline_id)
            if current is not None:
                return current
        known = self._versions.get((pipeline_id, version))
        if known is None:
            known = await asyncio.shield(self._fetch(self._fetch_version, (pipeline_id, version)))
        return known

    async def runtime(self, pipeline_id: str, version: int) -> RuntimePipeline:
        """A version with its outputs' connections as they are now; while the manager does not answer, as they were.

        Raises UnknownPipelineError, ConfigUnavailableError.
        """
        if (fresh := self.fresh_runtime(pipeline_id, version)) is not None:
            return fresh
        key = (pipeline_id, version)
        fetched_at, held = self._runtime.get(key) or (float("-inf"), None)
        age = time.monotonic() - fetched_at
        fetch = self._fetch(self._fetch_runtime, key)
        if held is not None and age < 2 * _RUNTIME_FRESH_SECONDS:
            return held  # the next message uses the fresh one
        try:
            return await asyncio.shield(fetch)
        except ConfigUnavailableError:
            if held is None:
                raise
            self._runtime[key] = (time.monotonic(), held)
            return held

    def fresh_runtime(self, pipeline_id: str, version: int) -> RuntimePipeline | None:
        """What ``runtime`` returns without asking the manager, which is so for nearly every message; else None."""
        held = self._runtime.get((pipeline_id, version))
        return held[1] if held is not None and time.monotonic() - held[0] < _RUNTIME_FRESH_SECONDS else None

    def held_runtime(self, pipeline_id: str, version: int) -> RuntimePipeline | None:
        """What is held of a version and its connectors, without asking the manager. None when nobody has needed it
        within the last hour."""
        held = self._runtime.get((pipeline_id, version))
        return held[1] if held is not None else None

    async def connectors_change(self) -> None:
        """Waits until a connector of what is held has changed since the last call. For one caller."""
        await self._connectors_changed.wait()
        self._connectors_changed.clear()

    def _fetch(self, fetch: Callable[[_Version], Coroutine[Any, Any, T]], key: _Version) -> asyncio.Task[T]:
        """One call to the manager for all messages that wait for the same thing, none of which may cancel it."""
        task: asyncio.Task[T] | None = self._fetches.get((fetch, key))
        if task is None:
            task = self._fetches[fetch, key] = asyncio.create_task(fetch(key))

            def forget(done: asyncio.Task[T]) -> None:
                del self._fetches[fetch, key]
                if not done.cancelled():
                    done.exception()  # perhaps no task awaits it: marks it as retrieved

            task.add_done_callback(forget)
        return task

    async def _fetch_version(self, key: _Version) -> PipelineSnapshot:
        answer = await self._call(self._stub.GetPipeline, *key)
        snapshot = stored.load_pipeline(answer.snapshot)
        self._versions[key] = snapshot
        return snapshot

    async def _fetch_runtime(self, key: _Version) -> RuntimePipeline:
        changes = self._changes
        answer = await self._call(self._stub.GetRuntimeConfig, *key)
        snapshot = stored.load_pipeline(answer.pipeline.snapshot)
        runtime = RuntimePipeline.of(snapshot, _connectors(answer.connectors))
        if changes == self._changes:
            self._hold(key, time.monotonic(), runtime)
        else:  # what has changed meanwhile may have come too late for this answer
            self._hold(key, float("-inf"), runtime)
            self._outdate(runtime.connectors)
        return runtime

    def _hold(self, key: _Version, fetched_at: float, runtime: RuntimePipeline) -> None:
        _, former = self._runtime.get(key) or (0.0, runtime)
        self._runtime[key] = (fetched_at, runtime)
        if runtime.connectors != former.connectors:
            self._connectors_changed.set()

    def _outdate(self, connectors: Iterable[UUID]) -> None:
        """These are fetched soon; until then they serve as they were."""
        self._outdated.update(connectors)
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh_connectors())

    async def _refresh_connectors(self) -> None:
        """Until no connector is outdated. It is fetched once for all pipelines that use it, and no message waits."""
        while asked := self._next_outdated():
            try:
                answer = await self._stub.GetConnectors(
                    pb.ConnectorsRequest(ids=map(str, asked)), metadata=self._metadata, timeout=_CALL_SECONDS
                )
            except grpc.aio.AioRpcError as error:
                log.warning("Connectors that have changed cannot be fetched at the moment: %s", error.details())
                self._outdated |= asked
                await asyncio.sleep(_RETRY_SECONDS * random.uniform(0.5, 1.5))
            else:
                self._replace(_connectors(answer.connectors))

    def _next_outdated(self) -> set[UUID]:
        """Some of the outdated connectors; those that nothing here uses are forgotten."""
        self._outdated &= self._used()
        asked = set(itertools.islice(self._outdated, _CONNECTORS))
        self._outdated -= asked
        return asked

    def _used(self) -> set[UUID]:
        return {pk for _, (_, runtime) in self._runtime.items() for pk in runtime.connectors}

    def _replace(self, present: Mapping[UUID, RuntimeConnector]) -> None:
        for key, (fetched_at, former) in self._runtime.items():
            runtime = former.with_connectors(present)
            if runtime is not former:
                # With the whole configuration, the manager notes that the pipeline works again, or does not.
                self._hold(key, fetched_at if runtime.errors == former.errors else float("-inf"), runtime)

    async def _call(self, method, pipeline_id: str, version: int):  # type: ignore[no-untyped-def]
        try:
            return await method(
                pb.PipelineRequest(pipeline_id=pipeline_id, version=version),
                metadata=self._metadata,
                timeout=_CALL_SECONDS,
            )
        except grpc.aio.AioRpcError as error:
            if error.code() == grpc.StatusCode.NOT_FOUND:
                raise UnknownPipelineError(f"Pipeline {pipeline_id} has no version {version}.") from None
            if error.code() == grpc.StatusCode.FAILED_PRECONDITION:
                raise UnknownPipelineError(error.details()) from None
            raise ConfigUnavailableError(f"The manager did not answer: {error.details()}") from None

    async def _follow(self) -> None:
        delay = 0.2
        while True:
            try:
                stream = self._stub.WatchPipelines(pb.WatchRequest(), metadata=self._metadata)
                self._arrived = set(), set()
                while True:
                    # Not wait_for(): in Python 3.11 it loses a cancellation that comes with an event.
                    async with asyncio.timeout(_SILENCE_SECONDS):
                        event = await stream.read()
                    if event is grpc.aio.EOF:  # type: ignore[attr-defined]
                        break
                    self._apply(event)
                    self.connected, delay = True, 0.2
            except (grpc.aio.AioRpcError, TimeoutError) as error:
                reason = error.details() if isinstance(error, grpc.aio.AioRpcError) else "no event in time"
                log.warning("The manager's stream ended (%s); continuing with the current configuration.", reason)
            self.connected = False
            if not self._loaded.is_set():
                await self._load_from_redis()
            await asyncio.sleep(delay * random.uniform(0.5, 1.5))
            delay = min(delay * 2, 5.0)

    def _apply(self, event: pb.WatchEvent) -> None:
        match event.WhichOneof("event"):
            case "snapshot_piece":
                self._apply_piece(event.snapshot_piece)
            case "changes":
                self._apply_piece(event.changes)
            case "snapshot_end" if self._arrived is not None:
                for pipeline_id in self._published.keep_only(*self._arrived):
                    self._forget_runtime(pipeline_id)
                self._arrived = None
                self._outdate(self._used())  # what changed while no stream was open is not pushed
                self._loaded.set()

    def _apply_piece(self, piece: pb.Piece) -> None:
        """The stream is in order, so that a piece is newer than everything here."""
        for pipeline in piece.pipelines:
            if self._published.put(pipeline.id, pipeline.snapshot):
                self._forget_runtime(pipeline.id)
        for pipeline_id in piece.pipelines_removed:
            self._published.remove(pipeline_id)
            self._forget_runtime(pipeline_id)
        if piece.connectors_changed:
            self._changes += 1
            self._outdate(map(UUID, piece.connectors_changed))
        for key in piece.keys:
            self._published.put_key(IngestKey(key.hash, UUID(key.workspace_id), key.expires_at))
        for hashed in piece.keys_removed:
            self._published.remove_key(hashed)
        if self._arrived is not None:
            self._arrived[0].update(pipeline.id for pipeline in piece.pipelines)
            self._arrived[1].update(key.hash for key in piece.keys)

    def _forget_runtime(self, pipeline_id: str) -> None:
        # Kept, but stale: it serves while the manager is unavailable.
        self._changes += 1
        for key, (_, runtime) in self._runtime.items():
            if key[0] == pipeline_id:
                self._runtime[key] = (float("-inf"), runtime)

    async def _load_from_redis(self) -> None:
        client = async_redis_client(self._redis_url)
        try:
            async for name, entry in client.hscan_iter(stored.PIPELINES, count=_SCANNED):
                self._published.put(name.decode(), entry)
            async for _, entry in client.hscan_iter(stored.INGEST_KEYS, count=_SCANNED):
                self._published.put_key(IngestKey.from_json(entry))
            is_complete = await client.exists(stored.COMPLETE)
        except (RedisError, OSError, ValueError) as error:  # another release may have written it
            log.warning("The configuration cannot be read from Redis: %s", error)
            return
        finally:
            await client.aclose()
        if is_complete:
            self._loaded.set()


def _connectors(sent: Mapping[str, pb.RuntimeConnector]) -> dict[UUID, RuntimeConnector]:
    return {
        UUID(connector_id): RuntimeConnector(
            type=connector.type,
            connection=json.loads(connector.connection or b"{}"),
            error=connector.error,
            registered={place: json.loads(made) for place, made in connector.registered.items()},
        )
        for connector_id, connector in sent.items()
    }
