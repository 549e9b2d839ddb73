"""The lane task: one long-running Spark task that reads a topic, handles each message on an
event loop, and commits results and offsets in one Kafka transaction.

Three threads share the work: the poll thread (lane_reader.py), the event loop, which runs the handler, and the commit
thread (lane_committer.py). What they share is in_flight.py.
"""

import asyncio
import logging
import threading
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any

import uvloop
from confluent_kafka import Message as KafkaRecord

from backend.delivery.commits import COMMITTED, Commit
from backend.domain.message import MalformedMessageError, Message
from backend.domain.reasons import Reason
from backend.domain.records import Record, dead_letter
from backend.manager_api.client import ConfigClient
from backend.manager_api.credentials import manager_access
from backend.settings import Settings
from backend.telemetry import events
from backend.telemetry.recorder import Recorder
from spark_jobs.streaming import quarantine, worker_deaths
from spark_jobs.streaming.in_flight import Accepted, Finished, InFlight
from spark_jobs.streaming.lane import Lane, LaneServices, Position
from spark_jobs.streaming.lane_committer import LaneCommitter
from spark_jobs.streaming.lane_reader import LaneReader
from spark_jobs.streaming.pulse import Pulse
from spark_jobs.streaming.record_marks import RecordMarks
from spark_jobs.streaming.slot_process import prepare_process
from spark_jobs.streaming.stop_channel import Address, watched
from spark_jobs.streaming.transaction import TransactionalWriter
from spark_jobs.streaming.window import total_size
from spark_jobs.streaming.worker_deaths import Deaths, RecordId

log = logging.getLogger(__name__)

_CONFIG_SECONDS = 60.0
_NO_FAULTS = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt)
"""What ends the handling of a message from outside. All else is a fault of it, also SystemExit and the panic of a
library in Rust, which would otherwise end the task, or leave the message open for ever."""


def run_slot(lane: Lane, environment: Settings, stop_address: Address, slot: int, slots: int) -> None:
    """The body of a Spark task: runs until the driver stops it, or raises so that Spark restarts it."""
    prepare_process(lane.stage.name, slot, environment.lane_memory_bytes if lane.memory_is_bounded else None)
    uvloop.run(_LaneTask(lane, environment, slot, slots).run(stop_address))


def _message(record: KafkaRecord) -> Message:
    """Raises MalformedMessageError."""
    key: Any = record.key()
    value: Any = record.value()
    headers: Any = record.headers() or []
    return Message.from_kafka(key=key, value=value, headers=headers)


def _position(record: KafkaRecord, commit: Commit = COMMITTED) -> Position:
    return Position(record.partition(), record.offset(), commit)  # type: ignore[arg-type]


class _EntryCommit:
    """The commit of one message in flight."""

    __slots__ = ("_changes", "_entry", "_window")

    def __init__(self, accepted: Accepted, changes: "_Changes") -> None:
        _, self._window, self._entry = accepted
        self._changes = changes

    @property
    def is_done(self) -> bool:
        return self._entry.is_committed

    @property
    def is_lost(self) -> bool:
        return self._window.is_lost

    async def ended(self) -> None:
        await self._changes.wait_for(lambda: self.is_done or self.is_lost)


class _Changes:
    """Lets coroutines wait for what other threads change. Waking the event loop costs, so it is done only when one
    waits."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._waiting = 0

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        self._waiting += 1
        try:
            while True:
                self._changed.clear()
                if condition():
                    return
                await self._changed.wait()
        finally:
            self._waiting -= 1

    def notify(self) -> None:
        """Called on any thread, after a change."""
        if self._waiting:
            self._loop.call_soon_threadsafe(self._changed.set)


class _LaneTask:
    def __init__(self, lane: Lane, environment: Settings, slot: int, slots: int) -> None:
        self._lane = lane
        self._environment = environment
        self._slot = slot
        self._slots = slots
        self._stop = threading.Event()
        # Accepted messages whose handling has not begun; used on the event loop.
        self._to_start: deque[Accepted] = deque()
        self._in_flight = InFlight(lane)
        self._pulse = Pulse(lambda: self._in_flight.is_committing, self._in_flight.oldest)
        stage = lane.stage
        assert stage.topic is not None
        self._topic = stage.topic
        self._deadly = worker_deaths.deadly_records(stage.topic)
        cell = worker_deaths.own_cell()
        cell.read_from(stage.topic)
        self._marks = RecordMarks(cell)
        # Stable per slot: a restarted task fences its predecessor.
        name = f"{stage.group}-{slot}"
        self._reader = LaneReader(
            kafka=environment.kafka,
            topic=stage.topic,
            group=stage.group,
            member=name,
            in_flight=self._in_flight,
            pulse=self._pulse,
            stop=self._stop,
        )
        self._committer = LaneCommitter(
            stage=stage.name,
            topic=stage.topic,
            seconds=lane.commit_seconds,
            in_flight=self._in_flight,
            writer=TransactionalWriter(
                environment.kafka,
                name,
                stage.group,
                lambda: self._reader.group_metadata,
                self._stop,
            ),
            pulse=self._pulse,
            stop=self._stop,
        )

    async def run(self, stop_address: Address) -> None:
        environment = self._environment
        config = ConfigClient(redis_url=environment.redis_url, **manager_access(environment))
        recorder = self._recorder = Recorder(environment.redis_url)
        recorder.start()
        try:
            await config.start(_CONFIG_SECONDS)
            self._handler = self._lane.handler(
                LaneServices(config, recorder, environment, self._slots, self._in_flight.committed_offset)
            )
            await self._run_threads(stop_address)
            await self._handler.close()
        finally:
            await config.close()
            await recorder.close()

    async def _run_threads(self, stop_address: Address) -> None:
        self._loop = asyncio.get_running_loop()
        self._commits = _Changes()
        self._loop.set_task_factory(self._marks.task_factory)
        stop = await watched(stop_address, self._environment.service_token, self._slot, self._pulse.report)
        poll = asyncio.create_task(
            asyncio.to_thread(self._reader.run, self._loop, self._handler, self._start, self._resume)
        )
        commit = asyncio.create_task(asyncio.to_thread(self._committer.run, self._resume))
        await asyncio.wait([poll, commit, stop], return_when=asyncio.FIRST_COMPLETED)
        log.info("Draining.")
        self._stop.set()
        self._in_flight.notify()
        stop.cancel()
        # A failed thread fails the task, which Spark then restarts.
        await asyncio.gather(poll, commit)
        log.info("Drained.")

    def _resume(self) -> None:
        """Called on any thread, when results were committed or lost: there may be room for others."""
        self._commits.notify()
        if self._to_start:
            self._loop.call_soon_threadsafe(self._start_more)

    def _start(self, accepted: list[Accepted]) -> None:
        self._to_start.extend(accepted)
        self._start_more()

    def _start_more(self) -> None:
        """Begins messages, in the order they were read, while there is room for their results, which may be far larger
        than the messages. The next commit makes room."""
        finished: list[Finished] = []
        room = self._in_flight.room
        while self._to_start and room > 0:
            item = self._to_start.popleft()
            record, _, entry = item
            place = _position(record)
            try:
                message = _message(record)
            except MalformedMessageError as error:
                records: list[Record] | None = [self._malformed(record, error)]
            else:
                # Each commit looks at the keys of all open messages, whose texts are rarely in the processor's cache.
                # Keys that share a hash only wait for each other's commit.
                entry.key = hash((message.pipeline_id, message.key))
                deaths = self._deadly.get(place[:2])
                records = [self._deadly_letter(message, place, deaths)] if deaths else self._handle_now(message, place)
            if records is None:
                work = self._handle(message, item)
                self._loop.create_task(self._marks.marked(place.partition, place.offset, work))
            else:
                size = total_size(records)
                finished.append((item, records, size))
                room -= size
        if finished:
            self._in_flight.finish(finished)

    def _handle_now(self, message: Message, position: Position) -> list[Record] | None:
        self._marks.begin(position.partition, position.offset)
        try:
            return self._handler.handle_now(message, position)
        except _NO_FAULTS:
            raise
        except BaseException as error:
            return [self._fault(message, error)]
        finally:
            self._marks.end()

    async def _handle(self, message: Message, accepted: Accepted) -> None:
        record = accepted[0]
        try:
            position = _position(record, _EntryCommit(accepted, self._commits))
            records = await self._handler.handle(message, position)
        except _NO_FAULTS:
            raise
        except BaseException as error:
            records = [self._fault(message, error)]
        self._in_flight.finish([(accepted, records, total_size(records))])

    def _fault(self, message: Message, error: BaseException) -> Record:
        """A defect in Headrace must neither stop the partition nor lose the message. The error's text stays in the log:
        it may hold a secret."""
        if isinstance(error, MemoryError):
            # What its functions had gathered is still there, and logging needs memory as well.
            traceback.clear_frames(error.__traceback__)
            log.error("A message needs more memory than there is.")
            limit = f"{self._environment.lane_memory_bytes >> 20:,} MiB, HEADRACE_LANE_MEMORY_BYTES"
            text = (
                f"There was not enough memory to handle the message (a worker may have {limit}). Correct the step that "
                "needs so much, and redeliver the message with the current version."
            )
            return self._dead(message, Reason.OUT_OF_MEMORY, text)
        log.error("A message could not be handled.", exc_info=error)
        text = f"Headrace failed unexpectedly ({type(error).__name__}); the job's log has the details."
        return self._dead(message, Reason.INTERNAL, text)

    def _deadly_letter(self, message: Message, place: Position, deaths: Deaths) -> Record:
        """Of a record that must not be handled again."""
        record = RecordId(self._topic, place.partition, place.offset)
        log.error("%s has ended %d workers (%s) and is set aside.", record, deaths.workers, deaths.cause)
        text = (
            f"The message ended the process that handled it {_times(deaths.workers)} ({deaths.cause}). It was read at "
            f"{record} and has {len(message.body):,} bytes. A step or a connector does not bear it, or does not return "
            "(SIGKILL). Correct the pipeline, and redeliver the message with the current version; it is handled anew."
        )
        return self._dead(message, Reason.ENDED_WORKER, text)

    def _dead(self, message: Message, reason: Reason, text: str) -> Record:
        """For a person to decide about. One that was redelivered for its output is the same dead letter still."""
        original, redelivery = message.split_redelivery()
        output = redelivery.output if redelivery else ""
        stage = self._lane.stage.dead_as or self._lane.stage.name
        for event in events.dead_letter(stage, redelivery):
            self._recorder.count(original.pipeline_id, event)
        return dead_letter(original, stage=stage, reason=reason, error=text, output=output)

    def _malformed(self, record: KafkaRecord, error: MalformedMessageError) -> Record:
        return quarantine.letter_of(record, stage=self._lane.stage.name, error=str(error))


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"
