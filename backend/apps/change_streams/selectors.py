"""Queries on change streams. A change stream is a connector of that type; its log says how far it has come."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import QuerySet
from django.utils import timezone

from backend.apps.change_streams.models import ChangeStreamState
from backend.apps.collections.selectors import collections_of, reader_of
from backend.apps.connectors.models import Connector
from backend.apps.connectors.selectors import connectors_of
from backend.apps.workspaces.models import Workspace
from backend.change_streams import checkpoint
from backend.change_streams.feed import source_name
from backend.collections.errors import CollectionError, CollectionMissingError
from backend.collections.reader import CollectionReader
from backend.collections.table import source_id
from backend.connectors.materialize_cdc import MaterializeCdc

STARTING, SENDING, FAILING, SILENT = "starting", "sending", "failing", "silent"

_REPORTED = timedelta(seconds=15)
"""The worker reports every two seconds; one that has not for so long does not run."""


def change_streams_of(workspace: Workspace) -> QuerySet[Connector]:
    return connectors_of(workspace).filter(type=MaterializeCdc.type)


@dataclass(frozen=True)
class StreamProgress:
    """How far a stream has come. ``complete`` is the time of its last transaction in milliseconds since 1970, None
    before the first one, which had so many ``updates``. ``waiting`` documents are not sent yet, None if that is not
    known. ``failures`` say why nothing can be sent, or a collection not be taken over."""

    state: str
    complete: int | None
    updates: int
    waiting: int | None
    failures: list[str]
    reported_at: datetime | None


def stream_progress(stream: Connector) -> StreamProgress:
    """What the stream's log and the worker say of it."""
    report = ChangeStreamState.objects.filter(connector=stream).first()
    failures = report.error.splitlines() if report is not None else []
    position, waiting = checkpoint.Checkpoint(), None
    try:
        log = _log_of(stream)
        if log is not None:
            position = checkpoint.load(log)
        waiting = _waiting(stream, log, position)
    except CollectionError as error:
        failures.append(str(error))
    return StreamProgress(
        state=_state(report, failures),
        complete=position.timestamp if position.timestamp >= 0 else None,
        updates=position.num_records,
        waiting=waiting,
        failures=failures,
        reported_at=report.changed_at if report is not None else None,
    )


def _state(report: ChangeStreamState | None, failures: list[str]) -> str:
    if report is None:
        return FAILING if failures else STARTING
    if timezone.now() - report.changed_at > _REPORTED:
        return SILENT
    return FAILING if failures else SENDING


def _log_of(stream: Connector) -> CollectionReader | None:
    """None when nothing was ever written to it. Raises CollectionError."""
    try:
        return reader_of(stream)
    except CollectionMissingError:
        return None


def _waiting(stream: Connector, log: CollectionReader | None, position: checkpoint.Checkpoint) -> int:
    """Documents in the log that are not sent, and those in collections that are not taken over. Raises
    CollectionError."""
    waiting = sum(log.snapshot.ends) - sum(position.begin) if log is not None else 0
    sources = collections_of(stream.workspace).filter(name__in=stream.connection.get("collections", []))
    return waiting + sum(_not_taken(source, log) for source in sources)


def _not_taken(source: Connector, log: CollectionReader | None) -> int:
    """Raises CollectionError."""
    reader = _log_of(source)
    if reader is None:
        return 0
    count = 0
    for partition in range(reader.partitions):
        name = source_id(source_name(str(source.pk), partition))
        taken = (log.transaction(name) if log is not None else None) or 0
        count += reader.end_offset(partition) - max(taken, reader.start_offset(partition))
    return count
