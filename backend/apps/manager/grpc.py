"""The gRPC service from which the data plane reads its configuration (manager.proto)."""

import asyncio
import itertools
import logging
import math
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from typing import Any, NoReturn, TypeVar
from uuid import UUID

import grpc
from django.db import Error as DatabaseError
from django.utils import timezone

from backend.apps.connectors.models import Connector
from backend.apps.connectors.secret_store import connection_with_secrets
from backend.apps.connectors.secrets import UnreadableSecretError
from backend.apps.connectors.vault import VaultUnavailableError
from backend.apps.jobs.grpc import JobsServicer
from backend.apps.kafka_sink.faults import is_data_fault
from backend.apps.manager.exports import ExportsServicer
from backend.apps.manager.feed import ConfigurationFeed, Names, Watcher
from backend.apps.manager.interceptors import FaultInterceptor, ServiceTokenInterceptor
from backend.apps.manager.leases import (
    Held,
    Progress,
    batch_complete,
    batch_split,
    leases_claim,
    leases_release,
    leases_renew,
)
from backend.apps.manager.models import InputLease
from backend.apps.manager.threads import in_thread
from backend.apps.pipelines.provisioning.registrations import registered
from backend.apps.pipelines.selectors import (
    published_entries,
    published_filters,
    published_revisions,
    snapshot_by_number,
)
from backend.apps.pipelines.services import pipeline_record_failure, snapshot_keep
from backend.apps.sql.grpc import QueriesServicer
from backend.apps.workspaces.selectors import ingest_keys
from backend.apps.workspaces.services import ingest_key
from backend.domain import json, uuids
from backend.domain.capabilities import Reading
from backend.domain.errors import ConflictError
from backend.domain.model import UnreadableConfigError
from backend.manager_api import snapshot as stored
from backend.manager_api.generated import exports_pb2_grpc, jobs_pb2_grpc, manager_pb2_grpc, sql_pb2_grpc
from backend.manager_api.generated import manager_pb2 as pb
from backend.network import tasks

log = logging.getLogger(__name__)

M = TypeVar("M", pb.Pipeline, pb.Filter)
C = TypeVar("C", pb.Pipeline, pb.RuntimeConfig)

_SNAPSHOT_SECONDS = 60.0
"""How often the snapshot in Redis is compared with the database."""
_SILENCE_SECONDS = 60.0
"""The longest time without an event in a stream of changes."""
_PIECE = 200
"""How many pipelines or keys are read at a time."""
_PIECE_BYTES = 1024 * 1024
_READINGS = {pb.BATCHING: Reading.BATCHING, pb.STREAMING: Reading.STREAMING}


class ManagerServicer(manager_pb2_grpc.ManagerServicer):
    """Answers from the database."""

    def __init__(self, feed: ConfigurationFeed) -> None:
        self._feed = feed

    async def GetPipeline(self, request: pb.PipelineRequest, context: Any) -> pb.Pipeline:
        return await _configuration(_pipeline, request, context)

    async def GetRuntimeConfig(self, request: pb.PipelineRequest, context: Any) -> pb.RuntimeConfig:
        return await _configuration(_runtime_config, request, context)

    async def GetConnectors(self, request: pb.ConnectorsRequest, context: Any) -> pb.Connectors:
        return await in_thread(_connectors, list(request.ids))

    async def WatchPipelines(self, request: pb.WatchRequest, context: Any) -> AsyncIterator[pb.WatchEvent]:
        with self._feed.watcher() as watcher:
            published = await self._published(context)
            # Whatever changes meanwhile is read again afterwards, so that the last thing sent is always the newest.
            async for piece in _pieces(published):
                yield pb.WatchEvent(snapshot_piece=piece)
                async for changes in _pieces(watcher.take()):
                    yield pb.WatchEvent(changes=changes)
            yield pb.WatchEvent(snapshot_end=pb.SnapshotEnd())
            while True:
                async for changes in _changes(watcher):
                    yield pb.WatchEvent(changes=changes)

    async def ListFilters(self, request: pb.ListFiltersRequest, context: Any) -> AsyncIterator[pb.ListFiltersResponse]:
        for names in _batches(await in_thread(published_revisions)):
            for filters in _of_size(await in_thread(_filters, names, request.workspace_id)):
                yield pb.ListFiltersResponse(filters=filters)

    async def _published(self, context: Any) -> Names:
        try:
            return await self._feed.published()
        except TimeoutError:
            details = "The manager has not read the configuration from its database yet."
            raise await _abort(context, grpc.StatusCode.UNAVAILABLE, details) from None

    async def LeaseInputs(self, request: pb.LeaseInputsRequest, context: Any) -> pb.LeaseInputsResponse:
        reading = _READINGS.get(request.reading)
        if reading is None:
            raise await _abort(context, grpc.StatusCode.INVALID_ARGUMENT, "Say which: BATCHING or STREAMING.")
        return pb.LeaseInputsResponse(leases=await in_thread(_claim, reading, request.holder, request.limit))

    async def Heartbeat(self, request: pb.HeartbeatRequest, context: Any) -> pb.HeartbeatResponse:
        return pb.HeartbeatResponse(leases=await in_thread(_renew, list(request.leases)))

    async def ReleaseInputs(self, request: pb.ReleaseInputsRequest, context: Any) -> pb.ReleaseInputsResponse:
        await in_thread(_release, list(request.leases))
        return pb.ReleaseInputsResponse()

    async def SplitBatch(self, request: pb.SplitBatchRequest, context: Any) -> pb.SplitBatchResponse:
        await in_thread(_split, request)
        return pb.SplitBatchResponse()

    async def CompleteBatch(self, request: pb.CompleteBatchRequest, context: Any) -> pb.CompleteBatchResponse:
        await in_thread(_complete, request)
        return pb.CompleteBatchResponse()


async def serve(
    *,
    address: str,
    service_token: str,
    redis_url: str,
    stop: asyncio.Event,
    credentials: grpc.ServerCredentials | None = None,
) -> None:
    """Serves until ``stop`` is set. Raises RuntimeError when the address is taken, and whatever ends the feed of
    changes.

    With ``credentials``, callers need a certificate; the token is only checked if one is set.
    """
    authenticating = [ServiceTokenInterceptor(service_token)] if service_token else []
    server = grpc.aio.server(interceptors=[*authenticating, FaultInterceptor()])
    feed = ConfigurationFeed(redis_url)
    manager_pb2_grpc.add_ManagerServicer_to_server(ManagerServicer(feed), server)  # type: ignore[no-untyped-call]
    jobs_pb2_grpc.add_JobsServicer_to_server(JobsServicer(), server)  # type: ignore[no-untyped-call]
    exports_pb2_grpc.add_ExportsServicer_to_server(ExportsServicer(), server)  # type: ignore[no-untyped-call]
    sql_pb2_grpc.add_QueriesServicer_to_server(QueriesServicer(), server)  # type: ignore[no-untyped-call]
    if credentials is None:
        server.add_insecure_port(address)
    else:
        server.add_secure_port(address, credentials)
    await server.start()
    log.info("Manager gRPC listens on %s.", address)
    following, stopping = asyncio.create_task(feed.run()), asyncio.create_task(stop.wait())
    done, _ = await asyncio.wait([following, stopping], return_when=asyncio.FIRST_COMPLETED)
    await tasks.cancel(stopping, following)
    await server.stop(grace=1.0)
    for task in done:
        task.result()


async def keep_snapshot() -> NoReturn:
    """Keeps the snapshot in Redis equal to the database, for changes that could not be announced while Redis was
    unavailable. At the start everything is written, since another release may have written it."""
    everything = True
    while True:
        if await in_thread(snapshot_keep, everything=everything):
            everything = False
        await asyncio.sleep(_SNAPSHOT_SECONDS)


async def _changes(watcher: Watcher) -> AsyncIterator[pb.Piece]:
    """The next changes; an empty piece when there are none for long."""
    await watcher.wait(_SILENCE_SECONDS)
    sent = False
    async for piece in _pieces(watcher.take()):
        yield piece
        sent = True
    if not sent:
        yield pb.Piece()


async def _pieces(named: Names) -> AsyncIterator[pb.Piece]:
    """The present state of these pipelines and keys, of which what is not published counts as removed; and the names of
    the connectors, whose secrets are told only on demand."""
    for names in _batches(named.connectors):
        yield pb.Piece(connectors_changed=names)
    for names in _batches(named.keys):
        yield await in_thread(_keys, names)
    for names in _batches(named.pipelines):
        entries = await in_thread(_entries, names)
        removed = set(names) - {entry.id for entry in entries}
        if removed:
            yield pb.Piece(pipelines_removed=removed)
        for part in _of_size(entries):
            yield pb.Piece(pipelines=part)


def _batches(names: Collection[str]) -> Iterator[list[str]]:
    remaining = iter(names)
    while batch := list(itertools.islice(remaining, _PIECE)):
        yield batch


def _of_size(messages: list[M]) -> Iterator[list[M]]:
    """In parts of about ``_PIECE_BYTES`` at most, or of a single one."""
    part: list[M] = []
    size = 0
    for message in messages:
        if part and size + message.ByteSize() > _PIECE_BYTES:
            yield part
            part, size = [], 0
        part.append(message)
        size += message.ByteSize()
    if part:
        yield part


async def _configuration(read: Callable[[str, int], C | None], request: pb.PipelineRequest, context: Any) -> C:
    """What ``read`` returns for the pipeline and version.

    A call that cannot be answered now is UNAVAILABLE, and the messages wait. Everything else is the pipeline's own
    fault, FAILED_PRECONDITION: waiting would not help, and its messages would take the place of others'.
    """
    try:
        configuration = await in_thread(read, request.pipeline_id, request.version)
    except UnreadableConfigError as error:
        raise await _abort(context, grpc.StatusCode.FAILED_PRECONDITION, str(error)) from None
    except (VaultUnavailableError, OSError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, DatabaseError) and not is_data_fault(error):
            raise
        raise await _unexpected(request, context, error) from None
    if configuration is None:
        raise await _not_found(context)
    return configuration


async def _unexpected(request: pb.PipelineRequest, context: Any, error: Exception) -> Exception:
    log.error("Pipeline %s, version %d, cannot be served.", request.pipeline_id, request.version, exc_info=error)
    details = f"The configuration cannot be prepared: {type(error).__name__}. The manager's log says more."
    return await _abort(context, grpc.StatusCode.FAILED_PRECONDITION, details)


async def _abort(context: Any, code: grpc.StatusCode, details: str) -> Exception:
    """Ends the call with that status; ``abort`` itself raises, so nothing is ever returned."""
    await context.abort(code, details)
    return AssertionError("abort() raises")


async def _not_found(context: Any) -> Exception:
    return await _abort(context, grpc.StatusCode.NOT_FOUND, "There is no such pipeline or version.")


def _pipeline(pipeline_id: str, version: int) -> pb.Pipeline | None:
    known = uuids.parsed(pipeline_id)
    snapshot = snapshot_by_number(known, version) if known else None
    if snapshot is None:
        return None
    return pb.Pipeline(id=pipeline_id, snapshot=stored.dump_pipeline(snapshot))


def _runtime_config(pipeline_id: str, version: int) -> pb.RuntimeConfig | None:
    known = uuids.parsed(pipeline_id)
    snapshot = snapshot_by_number(known, version) if known else None
    if snapshot is None:
        return None
    connectors = Connector.objects.select_related("workspace").in_bulk(snapshot.config.connectors)
    config = pb.RuntimeConfig(
        pipeline=pb.Pipeline(id=pipeline_id, snapshot=stored.dump_pipeline(snapshot)),
        connectors={str(pk): _runtime_connector(connector, snapshot.id) for pk, connector in connectors.items()},
    )
    failures = {connector.error for connector in config.connectors.values()} - {""}
    pipeline_record_failure(pipeline_id=snapshot.id, number=snapshot.version, failure=" ".join(sorted(failures)))
    return config


def _connectors(names: list[str]) -> pb.Connectors:
    connectors = Connector.objects.select_related("workspace").in_bulk(filter(None, map(uuids.parsed, names)))
    return pb.Connectors(connectors={str(pk): _runtime_connector(connector) for pk, connector in connectors.items()})


def _runtime_connector(connector: Connector, pipeline_id: UUID | None = None) -> pb.RuntimeConnector:
    """With what was made for the pipeline, if one is given."""
    try:
        connection = json.dumps(connection_with_secrets(connector))
        known = registered(pipeline_id=pipeline_id, connector_id=connector.pk) if pipeline_id is not None else {}
        made = {place: json.dumps(what) for place, what in known.items()}
    except UnreadableSecretError as error:
        return pb.RuntimeConnector(type=connector.type, error=str(error))
    except (VaultUnavailableError, DatabaseError, OSError, MemoryError):
        raise
    except Exception as error:
        log.exception("Connector %s cannot be served.", connector.pk)
        text = f"Connector {connector.name!r} cannot be prepared: {type(error).__name__}. The manager's log says more."
        return pb.RuntimeConnector(type=connector.type, error=text)
    return pb.RuntimeConnector(type=connector.type, connection=connection, registered=made)


def _entries(names: list[str]) -> list[pb.Pipeline]:
    return [pb.Pipeline(id=str(pk), snapshot=entry) for pk, entry in published_entries(names)]


def _keys(hashes: list[str]) -> pb.Piece:
    usable = [key for key in map(ingest_key, ingest_keys().filter(hash__in=hashes)) if key is not None]
    return pb.Piece(
        keys=[pb.IngestKey(hash=k.hash, workspace_id=str(k.workspace_id), expires_at=k.expires_at) for k in usable],
        keys_removed=set(hashes) - {key.hash for key in usable},
    )


def _filters(names: list[str], workspace_id: str) -> list[pb.Filter]:
    return [
        pb.Filter(
            pipeline_id=str(snapshot.id),
            workspace_id=str(snapshot.workspace_id),
            version=snapshot.version,
            condition=condition.model_dump_json().encode(),
        )
        for snapshot, condition in published_filters(names)
        if workspace_id in ("", str(snapshot.workspace_id))
    ]


def _claim(reading: Reading, holder: str, limit: int) -> list[pb.InputLease]:
    return [_lease(lease) for lease in leases_claim(reading=reading, holder=holder, limit=limit)]


def _renew(leases: list[pb.HeldLease]) -> list[pb.InputLease]:
    return [_lease(lease) for lease in leases_renew(*_reported(leases))]


def _release(leases: list[pb.HeldLease]) -> None:
    leases_release(*_reported(leases))


def _reported(leases: list[pb.HeldLease]) -> tuple[list[Held], dict[UUID, Progress]]:
    """What is held, and the progress by token. Without ids that are none: nobody holds those."""
    held: list[Held] = []
    progress: dict[UUID, Progress] = {}
    for lease in leases:
        pipeline_id, token = uuids.parsed(lease.pipeline_id), uuids.parsed(lease.token)
        if pipeline_id is not None and token is not None:
            held.append((pipeline_id, token))
            progress[token] = _progress(lease.progress)
    return held, progress


def _progress(reported: pb.Progress) -> Progress:
    return Progress(
        breakpoint=reported.breakpoint,
        rows=reported.rows,
        estimate=reported.estimate if reported.HasField("estimate") else None,
        failure=reported.failure if reported.HasField("failure") else None,
    )


def _split(request: pb.SplitBatchRequest) -> None:
    pipeline_id, token = _lease_ids(request.lease)
    batch_split(
        pipeline_id=pipeline_id,
        token=token,
        parts=[(part.begins_at, part.ends_at) for part in request.parts],
        progress=_progress(request.lease.progress),
    )


def _lease_ids(named: pb.HeldLease | pb.CompleteBatchRequest) -> Held:
    """Raises ConflictError."""
    pipeline_id, token = uuids.parsed(named.pipeline_id), uuids.parsed(named.token)
    if pipeline_id is None or token is None:
        raise ConflictError("There is no such lease.")
    return pipeline_id, token


def _complete(request: pb.CompleteBatchRequest) -> None:
    pipeline_id, token = _lease_ids(request)
    batch_complete(
        pipeline_id=pipeline_id,
        token=token,
        breakpoint=request.breakpoint,
        failure=request.failure,
        rows=request.rows,
    )


def _lease(lease: InputLease) -> pb.InputLease:
    version = lease.pipeline.published
    assert version is not None
    assert lease.locked_until is not None
    return pb.InputLease(
        pipeline_id=str(lease.pipeline_id),
        version=version.number,
        token=str(lease.token),
        seconds=math.floor((lease.locked_until - timezone.now()).total_seconds()),
        breakpoint=lease.breakpoint.encode(),
        ends_at=lease.part_end.encode(),
    )
