"""The gRPC service of the application that runs queries (sql.proto)."""

import logging
import math
from typing import Any

from asgiref.sync import sync_to_async
from django.db import DataError, close_old_connections, transaction
from django.utils import timezone

from backend.apps.sql.leases import readings_end
from backend.apps.sql.models import SqlQuery
from backend.domain import json
from backend.manager_api.generated import sql_pb2 as pb
from backend.manager_api.generated import sql_pb2_grpc

log = logging.getLogger(__name__)

_REPORTED = ["running", "error", "failures", "rows_per_second", "behind", "state_rows", "state_bytes"]


class QueriesServicer(sql_pb2_grpc.QueriesServicer):
    """Answers from the database, and records reports in it."""

    async def Sync(self, request: pb.SyncRequest, context: Any) -> pb.SyncResponse:
        return await sync_to_async(_sync, thread_sensitive=False)(request)


def _sync(request: pb.SyncRequest) -> pb.SyncResponse:
    close_old_connections()
    try:
        reports = {report.id: report for report in request.queries}
        readings_end()
        queries = list(SqlQuery.objects.exclude(plan=None))
        for query in queries:
            if (report := reports.get(str(query.pk))) is not None:
                _record(query, report)
        return pb.SyncResponse(
            queries=[
                pb.WantedQuery(id=str(query.pk), revision=query.revision, plan=json.dumps(query.plan))
                for query in queries
            ]
        )
    finally:
        close_old_connections()


def _record(query: SqlQuery, report: pb.QueryReport) -> None:
    """One query's report that the database cannot hold must not keep those of others from being recorded."""
    reported = {name: getattr(report, name) for name in _REPORTED}
    if all(getattr(query, name) == value for name, value in reported.items()):
        return
    try:
        if not math.isfinite(report.rows_per_second):
            raise DataError("rows_per_second is not a finite number.")
        # How the replaced query did says nothing of its successor.
        running = SqlQuery.objects.filter(pk=query.pk, revision=report.revision)
        with transaction.atomic():
            running.update(**reported, reported_at=timezone.now())
    except DataError as error:
        log.warning("What was reported of query %s cannot be recorded: %s", query.pk, error)
