"""Leases of inputs, for their readers (manager.proto)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from backend.domain import json
from backend.domain.capabilities import Part, Reading
from backend.manager_api.generated import manager_pb2 as pb
from backend.manager_api.generated.manager_pb2_grpc import ManagerStub

_CALL_SECONDS = 10.0
_PIECE_BYTES = 1024 * 1024
"""About how much is sent in one call."""
_READINGS = {Reading.BATCHING: pb.BATCHING, Reading.STREAMING: pb.STREAMING}


class LeasesUnavailableError(Exception):
    """The manager does not answer; a later attempt may succeed."""


class LeaseLostError(Exception):
    """The lease has expired, or its input has changed: another reader may hold it."""


@dataclass(frozen=True, slots=True)
class InputLease:
    """The right to be the only reader of an input, or of a part of a batch. ``breakpoint`` is where reading begins,
    None for the first time, and ``ends_at`` where the part ends, None for the whole."""

    pipeline_id: str
    version: int
    token: str
    breakpoint: Any
    ends_at: Any = None


@dataclass(frozen=True, slots=True)
class Progress:
    """What a reader has read since it got its lease.

    ``breakpoint`` is JSON, and empty as long as it is where the lease began; Kafka has acknowledged everything before
    it. ``estimate`` is how many rows a batch was expected to have when it began, or how many wait in a stream.
    ``failure`` is why the input cannot be read, empty when it can, and None as long as the reader does not know.
    """

    breakpoint: bytes = b""
    rows: int = 0
    estimate: int | None = None
    failure: str | None = None


Held = tuple[InputLease, Progress]


class LeaseClient:
    """Acquires leases from the manager and renews them. Used on one event loop."""

    def __init__(
        self, *, manager_address: str, service_token: str, credentials: grpc.ChannelCredentials | None = None
    ) -> None:
        self._channel = (
            grpc.aio.insecure_channel(manager_address)
            if credentials is None
            else grpc.aio.secure_channel(manager_address, credentials)
        )
        self._stub = ManagerStub(self._channel)  # type: ignore[no-untyped-call]
        self._metadata = (("authorization", f"Bearer {service_token}"),)

    async def claim(self, reading: Reading, holder: str, limit: int) -> list[InputLease]:
        """Leases of up to ``limit`` inputs that nobody reads. Raises LeasesUnavailableError."""
        request = pb.LeaseInputsRequest(reading=_READINGS[reading], holder=holder, limit=limit)
        answer = await self._call(self._stub.LeaseInputs, request)
        return [_lease(lease) for lease in answer.leases]

    async def renew(self, held: Iterable[Held]) -> list[InputLease]:
        """Records progress; the renewed leases, of which those that are missing are lost. Raises
        LeasesUnavailableError."""
        renewed: list[InputLease] = []
        for piece in _pieces(held):
            answer = await self._call(self._stub.Heartbeat, pb.HeartbeatRequest(leases=piece))
            renewed += [_lease(lease) for lease in answer.leases]
        return renewed

    async def release(self, held: Iterable[Held]) -> None:
        """Returns leases whose readers have stopped, with their progress. Raises LeasesUnavailableError."""
        for piece in _pieces(held):
            await self._call(self._stub.ReleaseInputs, pb.ReleaseInputsRequest(leases=piece))

    async def split(self, lease: InputLease, progress: Progress, parts: Sequence[Part]) -> None:
        """Puts a lease for each part in the place of that of a whole batch. Raises LeaseLostError, also when that was
        done already, and LeasesUnavailableError."""
        request = pb.SplitBatchRequest(
            lease=_held(lease, progress),
            parts=[pb.BatchPart(begins_at=json.dumps(begin), ends_at=json.dumps(end)) for begin, end in parts],
        )
        await self._call(self._stub.SplitBatch, request)

    async def complete(self, lease: InputLease, progress: Progress) -> None:
        """Ends a batch: the next begins at the breakpoint; with a failure, this one is read again from there. Raises
        LeaseLostError and LeasesUnavailableError."""
        unchanged = b"" if progress.failure else json.dumps(lease.breakpoint)
        request = pb.CompleteBatchRequest(
            pipeline_id=lease.pipeline_id,
            token=lease.token,
            breakpoint=progress.breakpoint or unchanged,
            failure=progress.failure or "",
            rows=progress.rows,
        )
        await self._call(self._stub.CompleteBatch, request)

    async def close(self) -> None:
        await self._channel.close(None)

    async def _call(self, method: Any, request: Any) -> Any:
        try:
            return await method(request, metadata=self._metadata, timeout=_CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            if error.code() == grpc.StatusCode.FAILED_PRECONDITION:
                raise LeaseLostError(error.details()) from None
            raise LeasesUnavailableError(f"The manager did not answer: {error.details()}") from None


def _pieces(held: Iterable[Held]) -> Iterator[list[pb.HeldLease]]:
    piece: list[pb.HeldLease] = []
    size = 0
    for lease, progress in held:
        piece.append(_held(lease, progress))
        size += piece[-1].ByteSize()
        if size > _PIECE_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def _held(lease: InputLease, progress: Progress) -> pb.HeldLease:
    reported = pb.Progress(
        breakpoint=progress.breakpoint, rows=progress.rows, estimate=progress.estimate, failure=progress.failure
    )
    return pb.HeldLease(pipeline_id=lease.pipeline_id, token=lease.token, progress=reported)


def _lease(lease: pb.InputLease) -> InputLease:
    breakpoint, ends_at = (json.loads(text) if text else None for text in (lease.breakpoint, lease.ends_at))
    return InputLease(lease.pipeline_id, lease.version, lease.token, breakpoint, ends_at)
