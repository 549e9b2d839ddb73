"""The poll thread of a lane task: reads the topic as far as the window has room, and follows the consumer group's
rebalances.

No other thread calls the consumer, since a call would wait for a poll to end.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaRecord

from backend.settings import KafkaSettings
from spark_jobs.streaming.in_flight import Accepted, InFlight
from spark_jobs.streaming.lane import Handler
from spark_jobs.streaming.pulse import Pulse
from spark_jobs.streaming.transaction import CALL_SECONDS, TRANSACTION_SECONDS
from spark_jobs.streaming.window import Progress

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.25
_POLL_RECORDS = 500
_PATIENCE_SECONDS = 1.0
_FILLING = 0.75
_ROOM = 0.875
_MAKE_ROOM_SECONDS = 0.05
_DRAIN_SECONDS = 20.0
_GENERATION_SECONDS = 0.1
_GENERATION_KEPT_SECONDS = 0.05
"""Asking for it at every poll cost 3 µs per message. A transaction under a stale generation is aborted and retried."""


def _consumer(kafka: KafkaSettings, group: str, member: str) -> Consumer:
    return Consumer(
        {
            **kafka.client(),
            "group.id": group,
            "client.id": member,
            # A restarted task gets its partitions immediately, without waiting for the session of a killed
            # predecessor to expire.
            "group.instance.id": member,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": 10_000,
            "heartbeat.interval.ms": 2_000,
            "queued.max.messages.kbytes": 16 * 1024,
            "reconnect.backoff.max.ms": 1000,
            "topic.metadata.refresh.interval.ms": 30_000,
        }
    )


class LaneReader:
    """Reads as ``member`` of the group, which is a static one. ``stop`` ends ``run``.

    On the event loop, ``accept`` takes what was read, and the handler is told when the window fills. ``resume`` is
    called when results that waited to be committed were dropped with their partitions.
    """

    def __init__(
        self,
        *,
        kafka: KafkaSettings,
        topic: str,
        group: str,
        member: str,
        in_flight: InFlight,
        pulse: Pulse,
        stop: threading.Event,
    ) -> None:
        self._topic = topic
        self._in_flight = in_flight
        self._pulse = pulse
        self._stop = stop
        self._next_make_room = 0.0
        self._generation_noted = 0.0
        self.group_metadata: Any = None
        """The consumer group's current generation, which a transaction's offsets are committed under."""
        self._consumer = _consumer(kafka, group, member)

    def run(
        self,
        loop: asyncio.AbstractEventLoop,
        handler: Handler,
        accept: Callable[[list[Accepted]], None],
        resume: Callable[[], None],
    ) -> None:
        """Raises KafkaException, for instance when a successor has taken over."""
        self._loop = loop
        self._handler = handler
        self._start = accept
        self._resume = resume
        self._consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
        try:
            while not self._stop.is_set():
                first = self._poll(_POLL_SECONDS)
                if first is not None:
                    self._accept([first, *self._consumer.consume(_POLL_RECORDS - 1, 0)])
                self._hold_back()
            self._wait_until_empty()
        finally:
            self._in_flight.end_reading(TRANSACTION_SECONDS)
            self._consumer.close()

    def _poll(self, seconds: float) -> KafkaRecord | None:
        record = self._consumer.poll(seconds)
        self._pulse.polled()
        if time.monotonic() - self._generation_noted > _GENERATION_KEPT_SECONDS:
            self._note_generation()
        return record

    def _note_generation(self) -> None:
        """Called on this thread, because the client blocks all others during a poll, and between polls and at every
        rebalance, because the group's generation changes without notice."""
        self._generation_noted = time.monotonic()
        with contextlib.suppress(RuntimeError):  # a consumer that is being closed has no metadata
            self.group_metadata = self._consumer.consumer_group_metadata()

    def _accept(self, records: list[KafkaRecord]) -> None:
        accepted, gaps = self._in_flight.add([record for record in records if not _is_error(record)])
        if accepted:
            self._loop.call_soon_threadsafe(self._start, accepted)
        for gap in gaps:
            self._pulse.note_loss(self._consumer, TopicPartition(self._topic, gap.partition, gap.start), gap.end)

    # -- a full window

    def _hold_back(self) -> None:
        """When the window is full, waits until there is room for others."""
        if self._in_flight.holds(_FILLING) and time.monotonic() > self._next_make_room:
            self._make_room()
        if not self._in_flight.holds(1) or self._wait_for_room():
            return
        # A consumer that does not poll for long loses its partitions. Pausing discards prefetched
        # records, so only a long wait is worth it.
        held = self._consumer.assignment()
        self._consumer.pause(held)
        self._loop.call_soon_threadsafe(self._handler.relieve)
        with self._pulse.holding_back():
            while not self._wait_for_room():
                self._loop.call_soon_threadsafe(self._handler.relieve)
                # A few records that were already fetched still arrive.
                record = self._poll(0)
                if record is not None:
                    self._accept([record])
        assigned = {(tp.topic, tp.partition) for tp in self._consumer.assignment()}
        self._consumer.resume([tp for tp in held if (tp.topic, tp.partition) in assigned])

    def _wait_for_room(self) -> bool:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline:
            self._make_room()
            if self._in_flight.wait_for_room(_ROOM, self._stop.is_set, _MAKE_ROOM_SECONDS):
                return True
        return False

    def _make_room(self) -> None:
        self._next_make_room = time.monotonic() + _MAKE_ROOM_SECONDS
        self._loop.call_soon_threadsafe(self._handler.make_room)

    # -- rebalances

    def _assigned(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        log.info("Assigned: %s", [tp.partition for tp in partitions])
        self._note_generation()
        starts = []
        for tp in self._committed(partitions):
            next_offset = self._pulse.note_loss(self._consumer, tp)
            progress = Progress.of(max(0, tp.offset), tp.metadata)
            self._in_flight.assign(tp.partition, progress, next_offset)
            self._loop.call_soon_threadsafe(self._handler.assigned, tp.partition)
            start = progress.offset if tp.offset >= 0 else OFFSET_BEGINNING
            starts.append(TopicPartition(tp.topic, tp.partition, start))
        # With explicit offsets: if the client itself fails to fetch the committed ones, because the coordinator has
        # just moved, it never reads these partitions.
        self._consumer.incremental_assign(starts)
        # The client pauses them still if they were lost while the window was full.
        self._consumer.resume(starts)

    def _committed(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Waits for the previous owner's last transaction to end. Raises KafkaException when the task stops."""
        while partitions:
            try:
                offsets: list[TopicPartition] = self._consumer.committed(partitions, CALL_SECONDS)
                return offsets
            except KafkaException as error:
                if self._stop.is_set():
                    raise
                self._pulse.polled()
                log.warning("Waiting for the committed offsets: %s", error.args[0].str())
        return []

    def _revoked(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        log.info("Revoked: %s", [tp.partition for tp in partitions])
        self._note_generation()
        self._wait_until_empty([tp.partition for tp in partitions])
        self._drop(partitions)

    def _lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        log.warning("Lost: %s", [tp.partition for tp in partitions])
        self._drop(partitions)

    def _drop(self, partitions: list[TopicPartition]) -> None:
        self._in_flight.drop(tp.partition for tp in partitions)
        self._resume()

    def _wait_until_empty(self, partitions: list[int] | None = None) -> None:
        """Waits until everything (of those partitions) is handled and committed, the time is over, or nothing is
        committed any more."""
        deadline = time.monotonic() + _DRAIN_SECONDS
        while time.monotonic() < deadline:
            # Repeated, because a message may have joined an incomplete batch only now.
            self._loop.call_soon_threadsafe(self._handler.flush)
            if self._in_flight.wait_until_empty(partitions, _GENERATION_SECONDS):
                return
            # Members may join or leave meanwhile; what is still to be committed needs the group's new generation.
            self._note_generation()


def _is_error(record: KafkaRecord) -> bool:
    """Logs the error. Raises KafkaException for one that ends the task."""
    error = record.error()
    if error is None:
        return False
    # The client does not mark the error that a successor causes as fatal.
    if error.fatal() or error.code() in (KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID):
        raise KafkaException(error)
    if error.code() != KafkaError._PARTITION_EOF:
        log.warning("Kafka: %s", error.str())
    return True
