"""Leases of inputs, for their readers (manager.proto)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import grpc

from backend.domain import json
from backend.domain.capabilities import Reading
from backend.manager_api.generated import manager_pb2 as pb
from backend.manager_api.generated.manager_pb2_grpc import ManagerStub

_CALL_SECONDS = 10.0
_READINGS = {Reading.BATCHING: pb.BATCHING, Reading.STREAMING: pb.STREAMING}


class LeasesUnavailableError(Exception):
    """The manager does not answer; a later attempt may succeed."""


class LeaseLostError(Exception):
    """The lease has expired, or its input has changed: another reader may hold it."""


@dataclass(frozen=True, slots=True)
class InputLease:
    """The right to be an input's only reader. ``breakpoint`` is where reading begins, None for the first time."""

    pipeline_id: str
    version: int
    token: str
    breakpoint: Any


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

    async def renew(self, leases: Iterable[InputLease]) -> list[InputLease]:
        """The renewed leases; those that are missing are lost. Raises LeasesUnavailableError."""
        held = [pb.HeldLease(pipeline_id=lease.pipeline_id, token=lease.token) for lease in leases]
        answer = await self._call(self._stub.Heartbeat, pb.HeartbeatRequest(leases=held))
        return [_lease(lease) for lease in answer.leases]

    async def complete(self, lease: InputLease, *, breakpoint: Any = None, failure: str = "") -> None:
        """Ends a batch: the next begins at the breakpoint or, with a failure, where this one did. Raises
        LeaseLostError and LeasesUnavailableError."""
        request = pb.CompleteBatchRequest(
            pipeline_id=lease.pipeline_id, token=lease.token, breakpoint=json.dumps(breakpoint), failure=failure
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


def _lease(lease: pb.InputLease) -> InputLease:
    return InputLease(
        lease.pipeline_id, lease.version, lease.token, json.loads(lease.breakpoint) if lease.breakpoint else None
    )
