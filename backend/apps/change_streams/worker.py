"""Sends all change streams. One process does it: the others wait for its lock, an advisory one of PostgreSQL."""

import logging
import threading
from datetime import datetime
from uuid import UUID

from django.db import Error, connection

from backend.apps.change_streams.models import ChangeStreamState
from backend.apps.change_streams.runner import StreamRunner
from backend.apps.connectors.models import Connector
from backend.connectors.materialize_cdc import MaterializeCdc

log = logging.getLogger(__name__)

_LOCK = 0x6368616E676573
"""The key of PostgreSQL's advisory lock; any number that nothing else uses."""
_ROUND_SECONDS = 2.0
_END_SECONDS = 10.0


def run(stop: threading.Event) -> None:
    """Sends until ``stop`` is set."""
    worker = _Worker()
    try:
        while not stop.is_set():
            worker.round()
            stop.wait(_ROUND_SECONDS)
    finally:
        worker.end()


class _Worker:
    """Used by one thread: the lock belongs to its connection to the database."""

    def __init__(self) -> None:
        self._runners: dict[UUID, StreamRunner] = {}
        self._has_lock = False

    def round(self) -> None:
        """Starts what is new, ends what has changed or was deleted, and stores the states of all streams."""
        try:
            configured = self._configured() if self._locked() else {}
        except Error as error:
            # The lock may be lost, and another process may send the streams.
            log.warning("Change streams cannot be listed at the moment: %s", error)
            connection.close()
            self._has_lock, configured = False, {}
        for stream, runner in list(self._runners.items()):
            if configured.get(stream) != runner.version:
                runner.end()
            if not runner.is_alive():
                del self._runners[stream]
        for stream, version in configured.items():
            if stream not in self._runners:  # the former one has ended, so that only one sends
                self._runners[stream] = StreamRunner(stream, version)
                self._runners[stream].start()
        for stream in configured.keys() & self._runners.keys():
            self._store_state(stream)

    def end(self) -> None:
        """Ends all streams. One that hangs is left to the end of the process."""
        for runner in self._runners.values():
            runner.end()
        for runner in self._runners.values():
            runner.join(_END_SECONDS)
        connection.close()

    def _locked(self) -> bool:
        if not self._has_lock:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_try_advisory_lock(%s)", [_LOCK])
                self._has_lock = cursor.fetchone()[0]
        return self._has_lock

    @staticmethod
    def _configured() -> dict[UUID, datetime]:
        """All streams, each with when it was last changed."""
        return dict(Connector.objects.filter(type=MaterializeCdc.type).values_list("pk", "updated_at"))

    def _store_state(self, stream: UUID) -> None:
        state = self._runners[stream].state()
        values = {"timestamp": state.timestamp, "num_records": state.num_records, "error": state.error}
        try:
            ChangeStreamState.objects.update_or_create(connector_id=stream, defaults=values)
        except Error as error:  # it was deleted, or the next round finds the database unavailable
            log.warning("The state of the change stream %s cannot be stored: %s", stream, error)
