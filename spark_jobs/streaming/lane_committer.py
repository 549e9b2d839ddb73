"""The commit thread of a lane task: writes what has finished, with its offsets, in one transaction after the other.

Finished messages are committed, in order for each key, without waiting for older messages (window.py).
"""

import logging
import threading
import time
from collections.abc import Callable

from confluent_kafka import KafkaError, TopicPartition

from backend.domain.records import Record
from spark_jobs.streaming import quarantine
from spark_jobs.streaming.in_flight import Done, InFlight
from spark_jobs.streaming.pulse import Pulse
from spark_jobs.streaming.slot_process import Garbage
from spark_jobs.streaming.transaction import Transaction, TransactionalWriter

log = logging.getLogger(__name__)


class LaneCommitter:
    """``stage`` is named in dead letters; ``topic`` is the one whose offsets are committed. There are ``seconds``
    between two transactions at least, until ``stop`` is set."""

    def __init__(
        self,
        *,
        stage: str,
        topic: str,
        seconds: float,
        in_flight: InFlight,
        writer: TransactionalWriter,
        pulse: Pulse,
        stop: threading.Event,
    ) -> None:
        self._stage = stage
        self._topic = topic
        self._seconds = seconds
        self._in_flight = in_flight
        self._writer = writer
        self._pulse = pulse
        self._stop = stop
        self._garbage = Garbage()

    def run(self, resume: Callable[[], None]) -> None:
        """Returns when reading has ended and all is committed. ``resume`` is called after each transaction and before
        the return.

        Raises KafkaException: the task then ends, and its restart reads everything uncommitted again.
        """
        try:
            self._writer.open()
            while self._in_flight.wait_for_finished():
                started = time.monotonic()
                self._commit_finished()
                resume()
                pause = self._seconds - (time.monotonic() - started)
                if pause > 0:
                    self._stop.wait(pause)
        finally:
            self._in_flight.end_commits()
            resume()

    def _commit_finished(self) -> None:
        done = self._in_flight.take_done()
        try:
            self._commit(done)
        finally:
            self._in_flight.end_transaction(done)
        self._garbage.handled(sum([len(entry.source) + entry.size for part in done for entry in part.entries]))

    def _commit(self, done: list[Done]) -> None:
        def transaction() -> Transaction | None:
            nonlocal done
            done = self._in_flight.owned(done)
            if not done:
                return None
            return Transaction(
                [record for part in done for entry in part.entries for record in entry.records or ()],
                [
                    TopicPartition(self._topic, part.partition, part.progress.offset, metadata=part.progress.metadata)
                    for part in done
                ],
            )

        def refuse(record: Record, error: KafkaError) -> None:
            log.error("A record for %s is refused: %s", record.topic, error.str())
            entries = (entry for part in done for entry in part.entries)
            for entry in entries:  # none, when another of its message's records was refused before
                if any(made is record for made in entry.records or ()):
                    entry.records = quarantine.without(
                        record, entry.records or [], entry.source, stage=self._stage, error=error
                    )
                    return

        self._writer.commit(transaction, refuse)
        self._pulse.committed()
        self._in_flight.note_committed(done)
