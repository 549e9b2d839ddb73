"""The gRPC service to which Spark applications report themselves (jobs.proto)."""

from typing import Any

from asgiref.sync import sync_to_async
from django.db import close_old_connections

from backend.apps.jobs.services import job_report
from backend.manager_api.generated import jobs_pb2 as pb
from backend.manager_api.generated import jobs_pb2_grpc
from backend.manager_api.jobs import Loss


class JobsServicer(jobs_pb2_grpc.JobsServicer):
    """Records reports in the database."""

    async def Report(self, request: pb.JobReport, context: Any) -> pb.JobOrder:
        return pb.JobOrder(drain=not await sync_to_async(_report, thread_sensitive=False)(request))


def _report(request: pb.JobReport) -> bool:
    close_old_connections()
    try:
        losses = [Loss(loss.stage, loss.partition, loss.first_offset, loss.count) for loss in request.losses]
        return job_report(name=request.job, token=request.token, losses=losses)
    finally:
        close_old_connections()
