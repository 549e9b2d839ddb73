"""What the application that runs queries asks the manager and reports to it (sql.proto)."""

from collections.abc import Iterable
from dataclasses import dataclass

import grpc
import msgspec

from backend.domain.connect_sql.plans import Plan
from backend.manager_api.generated import sql_pb2 as pb
from backend.manager_api.generated.sql_pb2_grpc import QueriesStub
from backend.manager_api.jobs import ManagerUnavailableError, manager_channel
from backend.settings import Settings

_CALL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class QueryReport:
    """How a query runs. ``error`` is why it failed last, empty once it runs well again; ``behind`` are waiting rows."""

    id: str
    revision: int
    running: bool
    error: str = ""
    failures: int = 0
    rows_per_second: float = 0.0
    behind: int = 0
    state_rows: int = 0
    state_bytes: int = 0


@dataclass(frozen=True, slots=True)
class WantedQuery:
    """A query that is to run. ``revision`` is raised when the plan changes; the checkpoint stays."""

    id: str
    revision: int
    plan: Plan


class QueryClient:
    """Used by one thread."""

    def __init__(self, settings: Settings) -> None:
        self._channel = manager_channel(settings)
        self._stub = QueriesStub(self._channel)  # type: ignore[no-untyped-call]
        self._metadata = (("authorization", f"Bearer {settings.service_token.get_secret_value()}"),)

    def sync(self, reports: Iterable[QueryReport]) -> list[WantedQuery]:
        """Every query that is to run. Raises ManagerUnavailableError."""
        request = pb.SyncRequest(queries=[query_report(report) for report in reports])
        try:
            answer = self._stub.Sync(request, metadata=self._metadata, timeout=_CALL_SECONDS)
        except grpc.RpcError as error:
            raise ManagerUnavailableError(f"The manager did not answer: {error.details()}") from None
        return [WantedQuery(one.id, one.revision, msgspec.json.decode(one.plan, type=Plan)) for one in answer.queries]

    def close(self) -> None:
        self._channel.close()


def query_report(report: QueryReport) -> pb.QueryReport:
    return pb.QueryReport(
        id=report.id,
        revision=report.revision,
        running=report.running,
        error=report.error,
        failures=report.failures,
        rows_per_second=report.rows_per_second,
        behind=report.behind,
        state_rows=report.state_rows,
        state_bytes=report.state_bytes,
    )
