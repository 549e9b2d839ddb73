"""The gRPC service from which the data plane reads its configuration (manager.proto)."""

import asyncio
import contextlib
import hmac
import logging
import math
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, NoReturn
from uuid import UUID

import grpc
from asgiref.sync import sync_to_async
from django.db import DatabaseError, InterfaceError, close_old_connections
from django.utils import timezone
from redis.asyncio import Redis
from redis.exceptions import RedisError

from backend.apps.connectors.models import Connector
from backend.apps.connectors.secret_store import connection_with_secrets
from backend.apps.connectors.secrets import UnreadableSecretError
from backend.apps.connectors.vault import VaultUnavailableError
from backend.apps.manager.leases import batch_complete, leases_claim, leases_renew
from backend.apps.manager.models import InputLease
from backend.apps.pipelines.selectors import snapshot_by_number
from backend.apps.pipelines.services import pipeline_record_failure, published_snapshots, snapshot_rewrite
from backend.apps.workspaces.models import ApiKey
from backend.apps.workspaces.selectors import ingest_keys, valid_keys
from backend.apps.workspaces.services import ingest_key
from backend.domain import json
from backend.domain.capabilities import Reading
from backend.domain.errors import ConflictError
from backend.domain.inputs.filter import FilterInput
from backend.domain.model import UnreadableConfigError
from backend.manager_api import snapshot as stored
from backend.manager_api.generated import manager_pb2 as pb
from backend.manager_api.generated import manager_pb2_grpc
from backend.network.redis_client import async_redis_subscriber

log = logging.getLogger(__name__)

_SNAPSHOT_SECONDS = 60.0
_WITHOUT_REDIS_SECONDS = 10.0
"""How often a full snapshot is sent while Redis is unavailable."""
_PROBE_SECONDS = 10.0
"""How often an idle subscription is probed."""
_READINGS = {pb.BATCHING: Reading.BATCHING, pb.STREAMING: Reading.STREAMING}


class ServiceTokenInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Rejects calls without the installation's service token."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}"

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        presented = str(dict(details.invocation_metadata).get("authorization", ""))
        if hmac.compare_digest(presented.encode(), self._expected.encode()):
            return await continuation(details)
        handler = await continuation(details)

        async def reject(_request: Any, context: Any) -> None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "The service token is missing or wrong.")

        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(reject)
        return grpc.unary_unary_rpc_method_handler(reject)


class ManagerServicer(manager_pb2_grpc.ManagerServicer):
    """Answers from the database. Follows changes by Redis pub/sub, with full snapshots as the fallback."""

    def __init__(self, redis_url: str) -> None:
        self._redis_url = redis_url

    async def GetPipeline(self, request: pb.PipelineRequest, context: Any) -> pb.Pipeline:
        try:
            pipeline: pb.Pipeline | None = await _in_thread(_pipeline, request.pipeline_id, request.version)
        except UnreadableConfigError as error:
            raise await _abort(context, grpc.StatusCode.FAILED_PRECONDITION, str(error)) from None
        if pipeline is None:
            raise await _not_found(context)
        return pipeline

    async def GetRuntimeConfig(self, request: pb.PipelineRequest, context: Any) -> pb.RuntimeConfig:
        try:
            config: pb.RuntimeConfig | None = await _in_thread(_runtime_config, request.pipeline_id, request.version)
        except VaultUnavailableError as error:
            raise await _abort(context, grpc.StatusCode.UNAVAILABLE, str(error)) from None
        except UnreadableConfigError as error:
            raise await _abort(context, grpc.StatusCode.FAILED_PRECONDITION, str(error)) from None
        if config is None:
            raise await _not_found(context)
        return config

    async def WatchPipelines(self, request: pb.WatchRequest, context: Any) -> AsyncIterator[pb.WatchEvent]:
        client = async_redis_subscriber(self._redis_url)
        try:
            while True:
                try:
                    async with contextlib.aclosing(_announced(client)) as events:
                        async for event in events:
                            yield event
                except (RedisError, OSError) as error:
                    log.warning("Redis pub/sub is unavailable (%s); falling back to full snapshots.", error)
                yield pb.WatchEvent(snapshot=await _in_thread(_snapshot))
                await asyncio.sleep(_WITHOUT_REDIS_SECONDS)
        finally:
            await client.aclose()

    async def ListFilters(self, request: pb.ListFiltersRequest, context: Any) -> pb.ListFiltersResponse:
        return pb.ListFiltersResponse(filters=await _in_thread(_filters, request.workspace_id))

    async def LeaseInputs(self, request: pb.LeaseInputsRequest, context: Any) -> pb.LeaseInputsResponse:
        reading = _READINGS.get(request.reading)
        if reading is None:
            raise await _abort(context, grpc.StatusCode.INVALID_ARGUMENT, "Say which: BATCHING or STREAMING.")
        return pb.LeaseInputsResponse(leases=await _in_thread(_claim, reading, request.holder, request.limit))

    async def Heartbeat(self, request: pb.HeartbeatRequest, context: Any) -> pb.HeartbeatResponse:
        return pb.HeartbeatResponse(leases=await _in_thread(_renew, list(request.leases)))

    async def CompleteBatch(self, request: pb.CompleteBatchRequest, context: Any) -> pb.CompleteBatchResponse:
        try:
            await _in_thread(_complete, request)
        except ConflictError as error:
            raise await _abort(context, grpc.StatusCode.FAILED_PRECONDITION, str(error)) from None
        except json.InvalidJsonError as error:
            details = f"The breakpoint is not JSON: {error}"
            raise await _abort(context, grpc.StatusCode.INVALID_ARGUMENT, details) from None
        return pb.CompleteBatchResponse()


async def serve(
    *,
    address: str,
    service_token: str,
    redis_url: str,
    stop: asyncio.Event,
    credentials: grpc.ServerCredentials | None = None,
) -> None:
    """Serves until ``stop`` is set. Raises RuntimeError when the address is taken.

    With ``credentials``, callers need a certificate; the token is only checked if one is set.
    """
    server = grpc.aio.server(interceptors=[ServiceTokenInterceptor(service_token)] if service_token else [])
    manager_pb2_grpc.add_ManagerServicer_to_server(ManagerServicer(redis_url), server)  # type: ignore[no-untyped-call]
    if credentials is None:
        server.add_insecure_port(address)
    else:
        server.add_secure_port(address, credentials)
    await server.start()
    log.info("Manager gRPC listens on %s.", address)
    await stop.wait()
    await server.stop(grace=1.0)


async def keep_snapshot() -> NoReturn:
    """Rewrites the snapshot in Redis every minute, which includes changes that could not be announced while Redis
    was unavailable."""
    while True:
        try:
            await _in_thread(snapshot_rewrite)
        except (RedisError, DatabaseError, InterfaceError) as error:
            log.warning("The snapshot in Redis could not be rewritten: %s", error)
        await asyncio.sleep(_SNAPSHOT_SECONDS)


async def _announced(client: Redis) -> AsyncGenerator[pb.WatchEvent]:
    """Announced changes, with a snapshot at the start and every minute. Raises RedisError, OSError."""
    async with client.pubsub() as changes:
        # Subscribed before the snapshot is read, so that no change is missed.
        await changes.subscribe(stored.CHANGES)
        while True:
            yield pb.WatchEvent(snapshot=await _in_thread(_snapshot))
            until = asyncio.get_running_loop().time() + _SNAPSHOT_SECONDS
            while (left := until - asyncio.get_running_loop().time()) > 0:
                message = await changes.get_message(ignore_subscribe_messages=True, timeout=min(left, _PROBE_SECONDS))
                if message is not None:
                    yield await _in_thread(_change, message["data"].decode())


async def _abort(context: Any, code: grpc.StatusCode, details: str) -> Exception:
    """Ends the call with that status; ``abort`` itself raises, so nothing is ever returned."""
    await context.abort(code, details)
    return AssertionError("abort() raises")


async def _not_found(context: Any) -> Exception:
    return await _abort(context, grpc.StatusCode.NOT_FOUND, "There is no such pipeline or version.")


async def _in_thread(function: Any, *arguments: Any) -> Any:
    def call() -> Any:
        close_old_connections()
        try:
            return function(*arguments)
        finally:
            close_old_connections()

    return await sync_to_async(call, thread_sensitive=False)()


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _pipeline(pipeline_id: str, version: int) -> pb.Pipeline | None:
    known = _uuid(pipeline_id)
    snapshot = snapshot_by_number(known, version) if known else None
    if snapshot is None:
        return None
    return pb.Pipeline(id=pipeline_id, snapshot=stored.dump_pipeline(snapshot))


def _runtime_config(pipeline_id: str, version: int) -> pb.RuntimeConfig | None:
    known = _uuid(pipeline_id)
    snapshot = snapshot_by_number(known, version) if known else None
    if snapshot is None:
        return None
    connectors = Connector.objects.select_related("workspace").in_bulk(snapshot.config.connectors)
    config = pb.RuntimeConfig(
        pipeline=pb.Pipeline(id=pipeline_id, snapshot=stored.dump_pipeline(snapshot)),
        connectors={str(pk): _runtime_connector(connector) for pk, connector in connectors.items()},
    )
    failures = {connector.error for connector in config.connectors.values()} - {""}
    pipeline_record_failure(pipeline_id=snapshot.id, number=snapshot.version, failure=" ".join(sorted(failures)))
    return config


def _runtime_connector(connector: Connector) -> pb.RuntimeConnector:
    try:
        connection = json.dumps(connection_with_secrets(connector))
    except UnreadableSecretError as error:
        return pb.RuntimeConnector(type=connector.type, error=str(error))
    return pb.RuntimeConnector(type=connector.type, connection=connection)


def _snapshot() -> pb.Snapshot:
    return pb.Snapshot(
        pipelines=[pb.Pipeline(id=str(s.id), snapshot=stored.dump_pipeline(s)) for s in published_snapshots()],
        keys=[_key(key) for key in ingest_keys()],
    )


def _key(key: ApiKey) -> pb.IngestKey:
    usable = ingest_key(key)
    assert usable is not None
    return pb.IngestKey(hash=usable.hash, workspace_id=str(usable.workspace_id), expires_at=usable.expires_at)


def _change(announced: str) -> pb.WatchEvent:
    kind, _, name = announced.partition(":")
    if kind == "pipeline":
        try:
            pipeline = _pipeline(name, 0)
        except UnreadableConfigError:  # already recorded by the publisher
            pipeline = None
        return pb.WatchEvent(pipeline_changed=pipeline) if pipeline else pb.WatchEvent(pipeline_removed=name)
    key = valid_keys().filter(hash=name).first()
    if key is None or ingest_key(key) is None:
        return pb.WatchEvent(key_removed=name)
    return pb.WatchEvent(key_changed=_key(key))


def _filters(workspace_id: str) -> list[pb.Filter]:
    return [
        pb.Filter(
            pipeline_id=str(snapshot.id),
            workspace_id=str(snapshot.workspace_id),
            version=snapshot.version,
            condition=snapshot.config.input.condition.model_dump_json().encode(),
        )
        for snapshot in published_snapshots()
        if isinstance(snapshot.config.input, FilterInput)
        and snapshot.accepting
        and workspace_id in ("", str(snapshot.workspace_id))
    ]


def _claim(reading: Reading, holder: str, limit: int) -> list[pb.InputLease]:
    return [_lease(lease) for lease in leases_claim(reading=reading, holder=holder, limit=limit)]


def _renew(held: list[pb.HeldLease]) -> list[pb.InputLease]:
    named = [(_uuid(lease.pipeline_id), _uuid(lease.token)) for lease in held]
    return [_lease(lease) for lease in leases_renew((pk, token) for pk, token in named if pk and token)]


def _complete(request: pb.CompleteBatchRequest) -> None:
    pipeline_id, token = _uuid(request.pipeline_id), _uuid(request.token)
    if pipeline_id is None or token is None:
        raise ConflictError("There is no such lease.")
    batch_complete(pipeline_id=pipeline_id, token=token, breakpoint=request.breakpoint, failure=request.failure)


def _lease(lease: InputLease) -> pb.InputLease:
    version = lease.pipeline.published
    assert version is not None
    assert lease.locked_until is not None
    return pb.InputLease(
        pipeline_id=str(lease.pk),
        version=version.number,
        token=str(lease.token),
        seconds=math.floor((lease.locked_until - timezone.now()).total_seconds()),
        breakpoint=lease.breakpoint.encode(),
    )
