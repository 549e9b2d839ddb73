"""The reports of a Spark application's driver to the manager (jobs.proto)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import grpc

from backend.manager_api.credentials import channel_credentials
from backend.manager_api.generated import jobs_pb2 as pb
from backend.manager_api.generated.jobs_pb2_grpc import JobsStub
from backend.settings import Settings

_CALL_SECONDS = 2.0


class ManagerUnavailableError(Exception):
    """The manager does not answer; a later attempt may succeed."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Messages that Kafka had deleted before the stage read them."""

    stage: str
    partition: int
    first_offset: int
    count: int


@dataclass(frozen=True, slots=True)
class Order:
    """The manager's answer to a report. ``demands`` are the stages that something needs, with the reason (Demand), and
    None when it does not know."""

    drain: bool
    demands: Mapping[str, str] | None


class JobClient:
    """Reports one application. Used by one thread."""

    def __init__(self, settings: Settings, job: str, token: int) -> None:
        self._channel = manager_channel(settings)
        self._stub = JobsStub(self._channel)  # type: ignore[no-untyped-call]
        self._metadata = (("authorization", f"Bearer {settings.service_token.get_secret_value()}"),)
        self._job, self._token = job, token

    def report(self, losses: Iterable[Loss] = ()) -> Order:
        """Raises ManagerUnavailableError."""
        messages = [
            pb.Loss(stage=o.stage, partition=o.partition, first_offset=o.first_offset, count=o.count) for o in losses
        ]
        request = pb.JobReport(job=self._job, token=self._token, losses=messages)
        try:
            order = self._stub.Report(request, metadata=self._metadata, timeout=_CALL_SECONDS)
        except grpc.RpcError as error:
            raise ManagerUnavailableError(f"The manager did not answer: {error.details()}") from None
        return Order(order.drain, dict(order.demands.by_stage) if order.HasField("demands") else None)

    def close(self) -> None:
        self._channel.close()


def manager_answers(settings: Settings) -> bool:
    with manager_channel(settings) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=_CALL_SECONDS)
        except grpc.FutureTimeoutError:
            return False
    return True


def manager_channel(settings: Settings) -> grpc.Channel:
    """To the manager, for calls that block."""
    credentials = channel_credentials(settings)
    if credentials is None:
        return grpc.insecure_channel(settings.manager_address)
    return grpc.secure_channel(settings.manager_address, credentials)
