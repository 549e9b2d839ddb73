"""The gRPC service to which Spark applications report themselves (jobs.proto)."""

from typing import Any

from asgiref.sync import sync_to_async
from django.db import close_old_connections

from backend.apps.jobs.selectors import stage_demands
from backend.apps.jobs.services import job_report
from backend.manager_api.generated import jobs_pb2 as pb
from backend.manager_api.generated import jobs_pb2_grpc
from backend.manager_api.jobs import Loss


class JobsServicer(jobs_pb2_grpc.JobsServicer):
    """Records reports in the database."""

    async def Report(self, request: pb.JobReport, context: Any) -> pb.JobOrder:
        order: pb.JobOrder = await sync_to_async(_report, thread_sensitive=False)(request)
        return order


def _report(request: pb.JobReport) -> pb.JobOrder:
    close_old_connections()
    try:
        losses = [Loss(loss.stage, loss.partition, loss.first_offset, loss.count) for loss in request.losses]
        may_go_on = job_report(name=request.job, token=request.token, losses=losses)
        return pb.JobOrder(drain=not may_go_on, demands=pb.Demands(by_stage=stage_demands()))
    finally:
        close_old_connections()
