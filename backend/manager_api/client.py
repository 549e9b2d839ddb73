"""The data plane's copy of the configuration."""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

import grpc
from pydantic import ValidationError
from redis.exceptions import RedisError

from backend.domain import json
from backend.domain.connector import RuntimeConnector
from backend.domain.idle_cache import IdleCache
from backend.domain.pipeline import PipelineSnapshot, RuntimeOutput
from backend.manager_api import snapshot as stored
from backend.manager_api.generated import manager_pb2 as pb
from backend.manager_api.generated.manager_pb2_grpc import ManagerStub
from backend.manager_api.snapshot import IngestKey
from backend.network.redis_client import async_redis_client

log = logging.getLogger(__name__)

T = TypeVar("T")
_Version = tuple[str, int]
"""A pipeline's id and the number of one of its versions."""

_CALL_SECONDS = 5.0
_RUNTIME_FRESH_SECONDS = 60.0
_VERSION_IDLE_SECONDS = 3600.0
_SILENCE_SECONDS = 150.0
"""The manager sends a snapshot every minute; a stream that is silent for longer is dead."""


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

    @classmethod
    def of(cls, snapshot: PipelineSnapshot, connectors: dict[UUID, RuntimeConnector]) -> "RuntimePipeline":
        return cls(
            snapshot,
            connectors,
            tuple(RuntimeOutput(config=o, connector=connectors[o.connector]) for o in snapshot.config.outputs),
        )


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
            self._channel = grpc.aio.insecure_channel(manager_address)
        else:
            self._channel = grpc.aio.secure_channel(manager_address, credentials)
        self._stub = ManagerStub(self._channel)  # type: ignore[no-untyped-call]
        self._metadata = (("authorization", f"Bearer {service_token}"),)
        self._redis_url = redis_url
        self._pipelines: dict[str, PipelineSnapshot] = {}
        self._keys: dict[str, IngestKey] = {}
        self._versions: IdleCache[_Version, PipelineSnapshot] = IdleCache(_VERSION_IDLE_SECONDS)
        self._runtime: IdleCache[_Version, tuple[float, RuntimePipeline]] = IdleCache(_VERSION_IDLE_SECONDS)
        self._fetches: dict[tuple[Any, _Version], asyncio.Task[Any]] = {}
        self._loaded = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.revision = 0
        """Grows with each change of the published pipelines."""
        self.connected = False
        """Whether the manager's stream is open now."""

    async def start(self, timeout: float = 10.0) -> None:
        """Begins to follow changes. Returns once a configuration is loaded.

        Raises ConfigUnavailableError when neither the manager nor Redis provided one in time.
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
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._channel.close(None)

    @property
    def loaded(self) -> bool:
        return self._loaded.is_set()

    def pipeline(self, pipeline_id: str) -> PipelineSnapshot | None:
        """The published version, or None."""
        return self._pipelines.get(pipeline_id)

    def pipelines(self) -> Iterable[tuple[str, PipelineSnapshot]]:
        """The published versions, by id."""
        return self._pipelines.items()

    def key(self, hashed: str) -> IngestKey | None:
        """The unexpired key with that SHA-256, or None."""
        key = self._keys.get(hashed)
        if key is None or (key.expires_at and key.expires_at <= time.time()):
            return None
        return key

    async def version(self, pipeline_id: str, version: int) -> PipelineSnapshot:
        """A version, published or past. Raises UnknownPipelineError, ConfigUnavailableError."""
        current = self._pipelines.get(pipeline_id)
        if current is not None and current.version == version:
            return current
        known = self._versions.get((pipeline_id, version))
        if known is None:
            known = await self._fetch(self._fetch_version, (pipeline_id, version))
        return known

    async def runtime(self, pipeline_id: str, version: int) -> RuntimePipeline:
        """A version with its outputs' connections, about a minute old at most while the manager answers.

        Raises UnknownPipelineError, ConfigUnavailableError.
        """
        key = (pipeline_id, version)
        fetched_at, held = self._runtime.get(key) or (float("-inf"), None)
        age = time.monotonic() - fetched_at
        if held is not None and age < _RUNTIME_FRESH_SECONDS:
            return held
        fetch = self._fetch(self._fetch_runtime, key)
        if held is not None and age < 2 * _RUNTIME_FRESH_SECONDS:
            return held  # the next message uses the fresh one
        try:
            return await fetch
        except ConfigUnavailableError:
            if held is None:
                raise
            self._runtime[key] = (time.monotonic(), held)
            return held

    def _fetch(self, fetch: Callable[[_Version], Coroutine[Any, Any, T]], key: _Version) -> asyncio.Future[T]:
        """One call to the manager for all messages that wait for the same thing."""
        task: asyncio.Task[T] | None = self._fetches.get((fetch, key))
        if task is None:
            task = self._fetches[fetch, key] = asyncio.create_task(fetch(key))

            def forget(done: asyncio.Task[T]) -> None:
                del self._fetches[fetch, key]
                if not done.cancelled():
                    done.exception()  # perhaps no task awaits it: marks it as retrieved

            task.add_done_callback(forget)
        return asyncio.shield(task)

    async def _fetch_version(self, key: _Version) -> PipelineSnapshot:
        answer = await self._call(self._stub.GetPipeline, *key)
        snapshot = stored.load_pipeline(answer.snapshot)
        self._versions[key] = snapshot
        return snapshot

    async def _fetch_runtime(self, key: _Version) -> RuntimePipeline:
        answer = await self._call(self._stub.GetRuntimeConfig, *key)
        snapshot = stored.load_pipeline(answer.pipeline.snapshot)
        runtime = RuntimePipeline.of(
            snapshot,
            {
                UUID(connector_id): RuntimeConnector(
                    type=connector.type, connection=json.loads(connector.connection or b"{}"), error=connector.error
                )
                for connector_id, connector in answer.connectors.items()
            },
        )
        self._runtime[key] = (time.monotonic(), runtime)
        return runtime

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
                while True:
                    # Not wait_for(): in Python 3.11 it loses a cancellation that comes with an event.
                    async with asyncio.timeout(_SILENCE_SECONDS):
                        event = await stream.read()
                    if event is grpc.aio.EOF:  # type: ignore[attr-defined]
                        break
                    self._apply(event)
                    self.connected, delay = True, 0.2
            except (grpc.aio.AioRpcError, TimeoutError) as error:
                reason = error.details() if isinstance(error, grpc.aio.AioRpcError) else "no snapshot in time"
                log.warning("The manager's stream ended (%s); continuing with the current configuration.", reason)
            self.connected = False
            if not self._loaded.is_set():
                await self._load_from_redis()
            await asyncio.sleep(delay * random.uniform(0.5, 1.5))
            delay = min(delay * 2, 5.0)

    def _apply(self, event: pb.WatchEvent) -> None:
        match event.WhichOneof("event"):
            case "snapshot":
                loaded = (_load(p.snapshot) for p in event.snapshot.pipelines)
                self._replace(
                    {str(p.id): p for p in loaded if p is not None},
                    [IngestKey(k.hash, UUID(k.workspace_id), k.expires_at) for k in event.snapshot.keys],
                )
            case "pipeline_changed":
                changed = _load(event.pipeline_changed.snapshot)
                if changed is not None:
                    self._pipelines[str(changed.id)] = changed
                    self.revision += 1
                    self._forget_runtime(str(changed.id))
            case "pipeline_removed":
                self._pipelines.pop(event.pipeline_removed, None)
                self.revision += 1
                self._forget_runtime(event.pipeline_removed)
            case "key_changed":
                k = event.key_changed
                self._keys[k.hash] = IngestKey(k.hash, UUID(k.workspace_id), k.expires_at)
            case "key_removed":
                self._keys.pop(event.key_removed, None)

    def _replace(self, pipelines: dict[str, PipelineSnapshot], keys: list[IngestKey]) -> None:
        self._pipelines = pipelines
        self.revision += 1
        self._keys = {key.hash: key for key in keys}
        self._loaded.set()

    def _forget_runtime(self, pipeline_id: str) -> None:
        # Kept, but stale: it serves while the manager is unavailable.
        for key, (_, runtime) in self._runtime.items():
            if key[0] == pipeline_id:
                self._runtime[key] = (float("-inf"), runtime)

    async def _load_from_redis(self) -> None:
        client = async_redis_client(self._redis_url)
        try:
            pipelines: dict[bytes, bytes] = await client.hgetall(stored.PIPELINES)  # type: ignore[assignment]
            keys: dict[bytes, bytes] = await client.hgetall(stored.INGEST_KEYS)  # type: ignore[assignment]
        except (RedisError, OSError) as error:
            log.warning("The configuration cannot be read from Redis: %s", error)
            return
        finally:
            await client.aclose()
        if pipelines or keys:
            loaded = (_load(data) for data in pipelines.values())
            self._replace(
                {str(p.id): p for p in loaded if p is not None},
                [IngestKey.from_json(data) for data in keys.values()],
            )


def _load(data: bytes) -> PipelineSnapshot | None:
    """None for an unreadable pipeline, which must not affect the others."""
    try:
        return stored.load_pipeline(data)
    except ValidationError as error:
        log.error("A published pipeline cannot be read by this release: %s", error)
        return None
