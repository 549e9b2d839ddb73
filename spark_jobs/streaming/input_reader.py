"""The reader of one leased input, or of a part of it: produces its messages, and knows how far it has come.

A breakpoint counts as reached once Kafka has acknowledged everything before it.
"""

import asyncio
import contextlib
import functools
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import uuid_utils
from confluent_kafka import KafkaException

from backend.domain import json, limits
from backend.domain.capabilities import (
    Batch,
    DeliveryError,
    InputRecord,
    Part,
    ReadBatch,
    Reading,
    ReadStream,
    internal_error,
)
from backend.domain.inputs.connector import ConnectorInput
from backend.domain.message import source_fields, utc_now
from backend.domain.message_maker import MessageMaker
from backend.domain.reasons import Reason
from backend.domain.records import Record, dead_letter
from backend.domain.stages import Stage
from backend.kafka.client.shared_producer import SharedProducer
from backend.manager_api.client import ConfigClient, ConfigUnavailableError, RuntimePipeline, UnknownPipelineError
from backend.manager_api.leases import InputLease, LeaseClient, LeaseLostError, LeasesUnavailableError, Progress
from backend.network import tasks
from backend.telemetry import events
from backend.telemetry.recorder import Recorder

log = logging.getLogger(__name__)

_OPEN_SECONDS = 60.0
"""An input that takes longer to open has failed: its lease would be renewed for ever otherwise."""
_REOPEN_SECONDS = 5.0
_SILENT_SECONDS = 25 * 60.0
"""A batch that returns nothing for this long has failed. The manager takes the lease five minutes later."""
_TURN_SECONDS = 600.0
"""After this time, the reader of a part leaves it to another reader, once other inputs have had their turn."""
_WORKING_SECONDS = 30.0
"""A stream that failed is considered to work again once it has been open for this long, or has returned something."""
_CLOSE_SECONDS = 15.0
_COMPLETE_EVERY_SECONDS = 1.0
_BUSY_SECONDS = 60.0
_LAG_EVERY_SECONDS = 10.0
_LAG_SECONDS = 5.0
_MOST_ROWS = 2**53
_IDENTITIES = uuid_utils.UUID("7a2c8f1e-5d0b-5c55-9a64-0f3f6d1f9c11")
"""Namespace of the ids of messages whose records have an identity."""


@dataclass(frozen=True)
class ReaderServices:
    """What all readers of a task share. ``calls`` limits calls to the manager."""

    stage: Stage
    config: ConfigClient
    leases: LeaseClient
    producer: SharedProducer
    recorder: Recorder
    calls: asyncio.Semaphore


class InputReader:
    """Reads an input to the end of a batch, or of a part of it, or, if it is a stream, until it is cancelled."""

    def __init__(self, lease: InputLease, reading: Reading, services: ReaderServices) -> None:
        self.lease = lease
        self._reading = reading
        self._services = services
        self._producer = services.producer.share()
        self._progress = Progress()
        self._recorded = b""
        """The last breakpoint that the manager has recorded."""
        self._keeps_breakpoints = reading is Reading.BATCHING
        self._bound: Any = None
        self._active_at = time.monotonic()

    @property
    def is_busy(self) -> bool:
        """Whether it began, or returned something, within the last minute."""
        return time.monotonic() - self._active_at < _BUSY_SECONDS

    def progress(self) -> Progress:
        """Since the lease was claimed; the breakpoint is left out when the manager has recorded it."""
        unchanged = self._progress.breakpoint == self._recorded
        return replace(self._progress, breakpoint=b"") if unchanged else self._progress

    def record(self, progress: Progress) -> None:
        """The manager has recorded that progress."""
        self._recorded = progress.breakpoint or self._recorded

    def take_over(self, former: "InputReader") -> None:
        """Goes on counting where the reader of the same lease stopped."""
        self._progress = former._progress

    async def run(self) -> None:
        """A failure of one input does not affect the others."""
        try:
            if self._reading is Reading.BATCHING:
                await self._read_batch()
            else:
                await self._read_stream()
        except LeaseLostError as error:
            log.info("Pipeline %s: %s", self.lease.pipeline_id, error)

    def is_outdated(self) -> bool:
        """Whether the input's configuration, as it is held, differs from the one that is being read with."""
        held = self._services.config.held_runtime(self.lease.pipeline_id, self.lease.version)
        return self._bound is not None and held is not None and _binding(held) != self._bound

    async def refresh(self) -> None:
        """Fetches the input's configuration again, so that what is held is not older than a minute."""
        with contextlib.suppress(ConfigUnavailableError, UnknownPipelineError):
            await self._runtime()

    async def _read_batch(self) -> None:
        """Reads from the breakpoint to the end of the input or the part, or divides the input into parts for others to
        read. A failure is recorded with the lease; the batch is retried."""
        breakpoint, is_part = self.lease.breakpoint, self.lease.ends_at is not None
        parts: Sequence[Part] = ()
        ended = True
        try:
            async with self._opened() as (reader, maker):
                assert isinstance(reader, ReadBatch)
                if not is_part:
                    await self._estimate(reader, breakpoint)
                    parts = await reader.plan(breakpoint)
                if not parts:
                    until = time.monotonic() + _TURN_SECONDS if is_part else math.inf
                    ended = await self._produce_all(maker, reader.read(breakpoint), until)
        except Exception as error:
            self._update(failure=self._failure(error))
            parts, ended = (), True
        else:
            self._update(failure="")
        leases = self._services.leases
        if parts:
            await self._told(lambda: leases.split(self.lease, self._progress, parts))
        elif ended:
            await self._told(lambda: leases.complete(self.lease, self._progress))
        else:
            await self._told(lambda: leases.release([(self.lease, self._progress)]))

    async def _told(self, call: Callable[[], Awaitable[None]]) -> None:
        """Until the manager knows; the lease is renewed meanwhile. Raises LeaseLostError."""
        while True:
            try:
                async with self._services.calls:
                    await call()
                return
            except LeasesUnavailableError as error:
                log.warning("The end of a batch of pipeline %s is not recorded yet: %s", self.lease.pipeline_id, error)
            await asyncio.sleep(_COMPLETE_EVERY_SECONDS)

    async def _estimate(self, reader: ReadBatch[Any, Any], breakpoint: Any) -> None:
        """Reading goes on without it: its own failure will tell what is wrong."""
        try:
            self._update(estimate=plausible(await reader.estimate(breakpoint)))
        except DeliveryError as error:
            text = str(error.without(reader.secrets()))
            log.info("Pipeline %s: how much there is to read is not known: %s", self.lease.pipeline_id, text)
        except Exception as error:
            log.exception("How much pipeline %s has to read is not known.", self.lease.pipeline_id, exc_info=error)

    async def _read_stream(self) -> None:
        """Reads for as long as the lease is held; a stream that ends is opened again."""
        while True:
            try:
                async with self._opened() as (reader, maker), _running(self._watch(reader)):
                    assert isinstance(reader, ReadStream)
                    async for batch in reader.stream():
                        await self._acknowledged(await self._send(maker, batch), batch)
                        await reader.acknowledge(batch.breakpoint)
            except Exception as error:
                self._update(failure=self._failure(error), estimate=None)
            await asyncio.sleep(_REOPEN_SECONDS)

    async def _watch(self, reader: ReadStream[Any, Any]) -> None:
        """Beside an open stream: how much waits, and whether it works again."""
        works_at = time.monotonic() + _WORKING_SECONDS
        while True:
            try:
                async with asyncio.timeout(_LAG_SECONDS):
                    self._update(estimate=plausible(await reader.lag()))
            except (DeliveryError, TimeoutError):
                self._update(estimate=None)
            except Exception as error:
                log.exception("The lag of pipeline %s is not known.", self.lease.pipeline_id, exc_info=error)
                self._update(estimate=None)
            if time.monotonic() > works_at:
                self._update(failure="")
            await asyncio.sleep(_LAG_EVERY_SECONDS)

    @contextlib.asynccontextmanager
    async def _opened(self) -> AsyncIterator[tuple[Any, MessageMaker]]:
        """The capability that reads the input, open, and the maker of messages from its records."""
        runtime = await self._runtime()
        use, connector = self._bound = _binding(runtime)
        reader = use.bind(connector)
        if isinstance(reader, ReadBatch):
            reader.ends_at = self.lease.ends_at
        if isinstance(reader, ReadStream) and reader.keeps_position:
            self._keeps_breakpoints = True
            reached = self._progress.breakpoint
            reader.position = json.loads(reached) if reached else self.lease.breakpoint
        try:
            await _open(reader)
            yield reader, MessageMaker(runtime.snapshot)
        except DeliveryError as error:
            raise error.without(reader.secrets()) from None
        finally:
            await self._close(reader)

    async def _close(self, reader: Any) -> None:
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await reader.close()
        except TimeoutError:
            log.warning("An input of pipeline %s did not close in time.", self.lease.pipeline_id)

    async def _runtime(self) -> RuntimePipeline:
        async with self._services.calls:
            return await self._services.config.runtime(self.lease.pipeline_id, self.lease.version)

    async def _produce_all(self, maker: MessageMaker, batches: AsyncIterator[Batch], until: float) -> bool:
        """Whether that was all; it stops at that time of the monotonic clock. The next batch is read and sent while
        Kafka acknowledges the last one. Raises KafkaException."""
        last: asyncio.Task[None] | None = None
        try:
            while (batch := await _next(batches)) is not None:
                sent = await self._send(maker, batch)
                if last is not None:
                    await last
                last = asyncio.create_task(self._acknowledged(sent, batch))
                if time.monotonic() > until:
                    break
            if last is not None:
                await last
            return batch is None
        except Exception:
            if last is not None:  # what Kafka has need not be read again
                await asyncio.wait([last])
            raise
        finally:
            if last is not None:
                last.cancel()

    async def _send(self, maker: MessageMaker, batch: Batch) -> asyncio.Future[None]:
        """Ends when Kafka has acknowledged everything, or with KafkaException. Raises KafkaException."""
        received_at = utc_now()
        return await self._producer.send_all([self._record(maker, record, received_at) for record in batch.records])

    async def _acknowledged(self, sent: asyncio.Future[None], batch: Batch) -> None:
        """Notes the progress once Kafka has acknowledged the batch. Raises KafkaException."""
        await sent
        rows = len(batch.records)
        if rows:
            self._services.recorder.count(self.lease.pipeline_id, events.ACCEPTED, rows)
        self._active_at = time.monotonic()
        self._update(rows=self._progress.rows + rows, failure="")
        if self._keeps_breakpoints:
            self._update(breakpoint=json.dumps(batch.breakpoint))

    def _record(self, maker: MessageMaker, record: InputRecord, received_at: str) -> Record:
        """The message, or a dead letter when the record has a fault, or its body is too large or not JSON as declared:
        a bad record does not stop the input."""
        make = functools.partial(
            maker.make,
            record.body,
            received_at=received_at,
            message_id=_message_id(self.lease.pipeline_id, record.identity),
            key=record.key,
        )
        stage = self._services.stage.name
        try:
            limits.check_body(len(record.body))
            message = make(record.content_type, headers=source_fields(record.source, record.headers))
            if record.fault:
                return dead_letter(message, stage=stage, reason=Reason.UNFIT_VALUE, error=record.fault)
            return Record.of(maker.topic, message)
        except json.InvalidJsonError as error:
            reason, text = Reason.NOT_JSON, f"The input returned a record that is not JSON: {error}"
        except limits.TooLargeError as error:
            reason, text = Reason.TOO_LARGE, f"The input returned a record that is too large. {error}"
        return dead_letter(make("application/octet-stream"), stage=stage, reason=reason, error=text)

    def _failure(self, error: Exception) -> str:
        """Records the error for the pipeline's page; returns it as a sentence."""
        pipeline_id = self.lease.pipeline_id
        match error:
            case DeliveryError() | ConfigUnavailableError() | UnknownPipelineError():
                failure = str(error)
            case KafkaException():
                failure = f"Kafka did not acknowledge the batch: {error.args[0].str()}."
            case _:
                log.exception("An input of pipeline %s could not be read.", pipeline_id, exc_info=error)
                failure = str(internal_error(error))
        self._services.recorder.error(
            pipeline_id, stage="input", reason=Reason.READ_FAILED, message=failure, message_id=""
        )
        return failure

    def _update(self, **changes: Any) -> None:
        self._progress = replace(self._progress, **changes)


def plausible(rows: int | None) -> int | None:
    """The number if a source may have so many rows, or else None: the manager could store neither it nor what other
    inputs report with it."""
    return rows if rows is not None and 0 <= rows <= _MOST_ROWS else None


def _binding(runtime: RuntimePipeline) -> tuple[ConnectorInput, Any]:
    """The input, and the connector that it reads."""
    use = runtime.snapshot.config.input
    assert isinstance(use, ConnectorInput)
    return use, runtime.connectors[use.connector]


async def _open(reader: Any) -> None:
    """Raises DeliveryError, also when opening takes too long."""
    limit = asyncio.timeout(_OPEN_SECONDS)
    try:
        async with limit:
            await reader.open()
    except TimeoutError:
        if not limit.expired():
            raise
        text = (
            f"The input did not open within {_OPEN_SECONDS:g} s. Check that the system it is read from answers; "
            "opening is tried again."
        )
        raise DeliveryError(Reason.TIMEOUT, text, retryable=True) from None


async def _next(batches: AsyncIterator[Batch]) -> Batch | None:
    """The next batch; None at the end. Raises DeliveryError when it does not come."""
    limit = asyncio.timeout(_SILENT_SECONDS)
    try:
        async with limit:
            return await anext(batches, None)
    except TimeoutError:
        if not limit.expired():
            raise
        text = f"The input returned nothing for {_SILENT_SECONDS / 60:.0f} minutes. Reading begins again."
        raise DeliveryError(Reason.TIMEOUT, text, retryable=True) from None


@contextlib.asynccontextmanager
async def _running(work: Any) -> AsyncIterator[None]:
    """Runs beside the body and is cancelled with its end."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        await tasks.cancel(task)


def _message_id(pipeline_id: str, identity: str) -> str:
    """The same id for the same record; empty, which asks for a new id, when the record has no identity."""
    return str(uuid_utils.uuid5(_IDENTITIES, f"{pipeline_id}/{identity}")) if identity else ""
