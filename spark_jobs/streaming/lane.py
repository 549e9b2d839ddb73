"""The lane task: one long-running Spark task that reads a topic, handles each message on an
event loop, and commits results and offsets in one Kafka transaction.

Three threads share the work. The *poll thread* owns the consumer: no other thread
calls it, since a call would wait for a poll to end. The *event loop* runs the handler. The
*commit thread* owns the transactional writer (transaction.py). Finished messages are
committed, in order for each key, without waiting for older messages (window.py).
"""

import asyncio
import contextlib
import gc
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import uvloop
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaRecord

from backend.domain.message import MalformedMessageError, Message
from backend.domain.records import Record, malformed_dead_letter
from backend.domain.stages import Stage
from backend.manager_api.client import ConfigClient
from backend.manager_api.credentials import channel_credentials
from backend.settings import Settings
from backend.telemetry.recorder import Recorder
from spark_jobs.streaming.stop_channel import Address, wait_for_stop
from spark_jobs.streaming.transaction import CALL_SECONDS, TRANSACTION_SECONDS, Transaction, TransactionalWriter
from spark_jobs.streaming.window import Entry, PartitionWindow, Progress

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.25
_POLL_RECORDS = 500
_PATIENCE_SECONDS = 1.0
_DRAIN_SECONDS = 20.0
_CONFIG_SECONDS = 60.0
_GENERATION_SECONDS = 0.1
_GARBAGE = 20_000


class Position(NamedTuple):
    """The record that a message was read from. It stays the same when the record is read again; a copy that was
    produced again has another."""

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}:{self.offset}"


class Handler(ABC):
    """A stage's processing of messages. Runs on the lane's event loop."""

    @abstractmethod
    async def handle(self, message: Message, position: Position) -> list[Record]:
        """The records that follow from the message; they are committed with its offset."""

    def handle_now(self, message: Message, position: Position) -> list[Record] | None:
        """The same without waiting, since a task for each message costs as much as some steps do. None when the
        message needs ``handle``."""
        return None

    def assigned(self, partition: int) -> None:  # noqa: B027  (few stages need it)
        """The partition was assigned to this task, possibly after others have owned it."""

    def relieve(self) -> None:  # noqa: B027
        """The window has been full for a second: messages that can be retried later should make room."""

    def flush(self) -> None:  # noqa: B027
        """The task stops or gives up partitions: incomplete batches should be sent without waiting further."""

    async def close(self) -> None:  # noqa: B027
        """Releases all resources."""


@dataclass(frozen=True)
class LaneServices:
    """The services that a handler may use. ``slots`` is the number of tasks that share the stage; ``committed``
    returns the offset before which everything of a partition is committed."""

    config: ConfigClient
    recorder: Recorder
    environment: Settings
    slots: int
    committed: Callable[[int], int]


HandlerFactory = Callable[[LaneServices], Handler]


@dataclass(frozen=True)
class Lane:
    """One lane: whose topic is read, by which handler, committed how often.

    ``commit_seconds`` is the least time between two transactions: 0 for the lowest latency,
    more where cost matters more. ``window`` bounds the messages in flight per
    task and ``window_bytes`` their size.
    """

    stage: Stage
    handler: HandlerFactory
    commit_seconds: float
    window: int = 2000
    window_bytes: int = 64 * 1024 * 1024


def run_slot(lane: Lane, environment: Settings, stop_address: Address, slot: int, slots: int) -> None:
    """The body of a Spark task: runs until the driver stops it, or raises so that Spark restarts it."""
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s %(levelname)s {lane.stage.name}[{slot}] %(message)s")
    # Thousands of messages in flight are not garbage: a collection after every 700 objects cost a tenth of the time.
    gc.freeze()
    gc.set_threshold(_GARBAGE)
    uvloop.run(_LaneTask(lane, environment, slot, slots).run(stop_address))


@dataclass(frozen=True)
class _Done:
    """The finished messages of a partition's window, to be committed."""

    partition: int
    window: PartitionWindow
    progress: Progress
    records: list[Record]


_Accepted = tuple[KafkaRecord, PartitionWindow, Entry]


def _message(record: KafkaRecord) -> Message:
    """Raises MalformedMessageError."""
    key: Any = record.key()
    value: Any = record.value()
    headers: Any = record.headers() or []
    return Message.from_kafka(key=key, value=value, headers=headers)


def _position(record: KafkaRecord) -> Position:
    return Position(record.partition(), record.offset())  # type: ignore[arg-type]


class _LaneTask:
    def __init__(self, lane: Lane, environment: Settings, slot: int, slots: int) -> None:
        self._lane = lane
        assert lane.stage.topic is not None
        self._topic = lane.stage.topic
        self._slots = slots
        self._name = f"{lane.stage.group}-{slot}"
        self._environment = environment
        self._windows: dict[int, PartitionWindow] = {}
        self._offsets: dict[int, int] = {}
        self._in_flight = 0
        self._bytes_in_flight = 0
        # Guards the windows and the numbers above; signalled when a message is done or committed.
        self._changed = threading.Condition()
        self._waiting = 0
        self._stop = threading.Event()
        self._drained = False
        self._committing = False
        self._group: Any = None
        # Stable per slot: a restarted task fences its predecessor.
        self._writer = TransactionalWriter(
            environment.kafka_bootstrap_servers, self._name, lambda: self._group, self._stop
        )
        self._consumer = Consumer(
            {
                "bootstrap.servers": environment.kafka_bootstrap_servers,
                "group.id": lane.stage.group,
                "client.id": self._name,
                # A restarted task takes its partitions over at once, without waiting for the
                # session of a killed predecessor to expire.
                "group.instance.id": self._name,
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

    async def run(self, stop_address: Address) -> None:
        self._loop = asyncio.get_running_loop()
        environment = self._environment
        config = ConfigClient(
            manager_address=environment.manager_address,
            service_token=environment.service_token.get_secret_value(),
            redis_url=environment.redis_url,
            credentials=channel_credentials(environment),
        )
        recorder = Recorder(environment.redis_url)
        recorder.start()
        try:
            await config.start(_CONFIG_SECONDS)
            self._handler = self._lane.handler(
                LaneServices(config, recorder, environment, self._slots, self._committed_offset)
            )
            await self._run_threads(stop_address)
            await self._handler.close()
        finally:
            await config.close()
            await recorder.close()

    async def _run_threads(self, stop_address: Address) -> None:
        poll = asyncio.create_task(asyncio.to_thread(self._poll_loop))
        commit = asyncio.create_task(asyncio.to_thread(self._commit_loop))
        stop = asyncio.create_task(wait_for_stop(stop_address))
        await asyncio.wait([poll, commit, stop], return_when=asyncio.FIRST_COMPLETED)
        log.info("Draining.")
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        stop.cancel()
        # A failed thread fails the task, which Spark then restarts.
        await asyncio.gather(poll, commit)
        log.info("Drained.")

    # -- poll thread ---------------------------------------------------------

    def _poll_loop(self) -> None:
        self._consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
        try:
            while not self._stop.is_set():
                first = self._poll(_POLL_SECONDS)
                if first is not None:
                    self._accept([first, *self._consumer.consume(_POLL_RECORDS - 1, 0)])
                self._hold_back()
            self._wait_until_empty(_DRAIN_SECONDS)
        finally:
            with self._changed:
                self._drained = True
                self._changed.notify_all()
                self._changed.wait_for(lambda: not self._committing, TRANSACTION_SECONDS)
            self._consumer.close()

    def _poll(self, seconds: float) -> KafkaRecord | None:
        record = self._consumer.poll(seconds)
        self._note_generation()
        return record

    def _note_generation(self) -> None:
        """Called on this thread, because the client blocks all others during a poll, and at every
        poll and rebalance, because the group's generation changes without notice."""
        with contextlib.suppress(RuntimeError):  # a consumer that is being closed has no metadata
            self._group = self._consumer.consumer_group_metadata()

    def _accept(self, records: list[KafkaRecord]) -> None:
        accepted: list[_Accepted] = []
        with self._changed:
            for record in records:
                error = record.error()
                if error is not None:
                    if error.fatal():
                        raise KafkaException(error)
                    if error.code() != KafkaError._PARTITION_EOF:
                        log.warning("Kafka: %s", error.str())
                    continue
                window = self._windows.get(record.partition())  # type: ignore[arg-type]
                if window is None:  # revoked between fetch and here
                    continue
                entry = window.add(record.offset())  # type: ignore[arg-type]
                if entry is None:  # committed already, ahead of older messages
                    continue
                accepted.append((record, window, entry))
                self._in_flight += 1
                self._bytes_in_flight += len(record)
        if accepted:
            self._loop.call_soon_threadsafe(self._start, accepted)

    def _hold_back(self) -> None:
        """When the window is full, waits until half of it is done."""
        if not self._is_full(1) or self._wait_for_room():
            return
        # A consumer that does not poll for long loses its partitions. Pausing discards prefetched
        # records, so only a long wait is worth it.
        held = self._consumer.assignment()
        self._consumer.pause(held)
        self._loop.call_soon_threadsafe(self._handler.relieve)
        while not self._wait_for_room():
            self._loop.call_soon_threadsafe(self._handler.relieve)
            # A few records that were already fetched still arrive.
            record = self._poll(0)
            if record is not None:
                self._accept([record])
        assigned = {(tp.topic, tp.partition) for tp in self._consumer.assignment()}
        self._consumer.resume([tp for tp in held if (tp.topic, tp.partition) in assigned])

    def _wait_for_room(self) -> bool:
        with self._changed:
            return self._wait(lambda: self._stop.is_set() or not self._is_full(2), _PATIENCE_SECONDS)

    def _wait(self, condition: Callable[[], bool], seconds: float | None = None) -> bool:
        """Waits until the condition holds. A finished message only notifies when a thread waits here, since
        that costs more than handling a message."""
        self._waiting += 1
        try:
            return self._changed.wait_for(condition, seconds)
        finally:
            self._waiting -= 1

    def _is_full(self, share: int) -> bool:
        return self._in_flight > self._lane.window // share or self._bytes_in_flight > self._lane.window_bytes // share

    def _assigned(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        log.info("Assigned: %s", [tp.partition for tp in partitions])
        self._note_generation()
        for tp in self._committed(partitions):
            progress = Progress.of(max(0, tp.offset), tp.metadata)
            with self._changed:
                self._windows[tp.partition] = PartitionWindow(progress)
                self._offsets[tp.partition] = progress.offset
            self._loop.call_soon_threadsafe(self._handler.assigned, tp.partition)

    def _committed(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Waits for the previous owner's last transaction to end. Raises KafkaException when the task stops."""
        while partitions:
            try:
                offsets: list[TopicPartition] = self._consumer.committed(partitions, CALL_SECONDS)
                return offsets
            except KafkaException as error:
                if self._stop.is_set():
                    raise
                log.warning("Waiting for the committed offsets: %s", error.args[0].str())
        return []

    def _revoked(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        log.info("Revoked: %s", [tp.partition for tp in partitions])
        self._note_generation()
        self._wait_until_empty(_DRAIN_SECONDS, [tp.partition for tp in partitions])
        self._drop(partitions)

    def _lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        log.warning("Lost: %s", [tp.partition for tp in partitions])
        self._drop(partitions)

    def _drop(self, partitions: list[TopicPartition]) -> None:
        with self._changed:
            for tp in partitions:
                self._windows.pop(tp.partition, None)

    def _wait_until_empty(self, seconds: float, partitions: list[int] | None = None) -> None:
        """Waits until everything (of those partitions) is handled and committed, or the time is over."""

        def empty() -> bool:
            windows = [w for p, w in self._windows.items() if partitions is None or p in partitions]
            return not any(windows) and not self._committing

        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            # Repeated, because a message may have joined an incomplete batch only now.
            self._loop.call_soon_threadsafe(self._handler.flush)
            with self._changed:
                if self._wait(empty, _GENERATION_SECONDS):
                    return
            # Members may join or leave meanwhile; what is still to be committed needs the group's new generation.
            self._note_generation()

    # -- event loop ----------------------------------------------------------

    def _start(self, accepted: list[_Accepted]) -> None:
        finished: list[tuple[_Accepted, list[Record]]] = []
        for item in accepted:
            record, _, entry = item
            try:
                message = _message(record)
                entry.key = (message.pipeline_id, message.key)
                records = self._handler.handle_now(message, _position(record))
            except MalformedMessageError as error:
                records = [self._dead_letter(record, str(error))]
            except Exception as error:
                records = [self._fault(record, error)]
            if records is None:
                self._loop.create_task(self._handle(message, item))
            else:
                finished.append((item, records))
        if finished:
            self._finish(finished)

    async def _handle(self, message: Message, accepted: _Accepted) -> None:
        record = accepted[0]
        try:
            records = await self._handler.handle(message, _position(record))
        except Exception as error:
            records = [self._fault(record, error)]
        self._finish([(accepted, records)])

    def _fault(self, record: KafkaRecord, error: Exception) -> Record:
        """A defect in Headrace must neither stop the partition nor lose the message."""
        log.exception("A message could not be handled.")
        return self._dead_letter(record, f"Internal error: {error}")

    def _dead_letter(self, record: KafkaRecord, error: str) -> Record:
        key: Any = record.key()
        value: Any = record.value()
        headers: Any = record.headers() or []
        return malformed_dead_letter(key=key, value=value, headers=headers, stage=self._lane.stage.name, error=error)

    def _finish(self, finished: list[tuple[_Accepted, list[Record]]]) -> None:
        with self._changed:
            for (record, window, entry), records in finished:
                window.finish(entry, records)
                self._in_flight -= 1
                self._bytes_in_flight -= len(record)
            if self._waiting:
                self._changed.notify_all()

    # -- commit thread -------------------------------------------------------

    def _commit_loop(self) -> None:
        self._writer.open()
        while True:
            with self._changed:
                self._wait(lambda: self._drained or self._has_finished())
                if not self._has_finished():
                    return
            started = time.monotonic()
            self._commit_done()
            pause = self._lane.commit_seconds - (time.monotonic() - started)
            if pause > 0:
                self._stop.wait(pause)

    def _committed_offset(self, partition: int) -> int:
        return self._offsets.get(partition, 0)

    def _has_finished(self) -> bool:
        return any(window.has_finished for window in self._windows.values())

    def _commit_done(self) -> None:
        with self._changed:
            self._committing = True
            done = [
                _Done(partition, window, progress, records)
                for partition, window in self._windows.items()
                for progress, records in [window.take_done()]
                if progress is not None
            ]
        try:
            self._commit(done)
        finally:
            with self._changed:
                self._committing = False
                self._changed.notify_all()

    def _commit(self, done: list[_Done]) -> None:
        """Raises KafkaException: the task then ends, and its restart reads everything uncommitted again."""

        def transaction() -> Transaction | None:
            nonlocal done
            # Partitions that were lost meanwhile belong to a new owner, which reads their messages again.
            with self._changed:
                done = [part for part in done if self._windows.get(part.partition) is part.window]
            if not done:
                return None
            topic = self._topic
            return Transaction(
                [record for part in done for record in part.records],
                [
                    TopicPartition(topic, part.partition, part.progress.offset, metadata=part.progress.metadata)
                    for part in done
                ],
            )

        self._writer.commit(transaction)
        for part in done:
            self._offsets[part.partition] = part.progress.offset
