"""The input task: one long-running Spark task that reads leased inputs and produces their messages.

It claims leases of inputs that nobody reads, up to the number it can read at the same time, and renews them every few
seconds. A reader stops at once when its lease is lost, since another task may then read the same input. A breakpoint
is stored once Kafka has acknowledged everything before it.
"""

import asyncio
import contextlib
import functools
import logging
import socket
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

import uvloop
from confluent_kafka import KafkaException

from backend.domain import json
from backend.domain.capabilities import (
    Batch,
    DeliveryError,
    InputRecord,
    ReadBatch,
    Reading,
    ReadStream,
    internal_error,
)
from backend.domain.inputs.connector import ConnectorInput
from backend.domain.message import utc_now
from backend.domain.message_maker import MessageMaker
from backend.domain.reasons import Reason
from backend.domain.records import Record, dead_letter
from backend.domain.stages import Stage
from backend.kafka.client.producer import AsyncProducer
from backend.manager_api.client import ConfigClient, ConfigUnavailableError, UnknownPipelineError
from backend.manager_api.credentials import channel_credentials
from backend.manager_api.leases import InputLease, LeaseClient, LeaseLostError, LeasesUnavailableError
from backend.settings import Settings
from backend.telemetry import events
from backend.telemetry.recorder import Recorder
from spark_jobs.streaming.stop_channel import Address, wait_for_stop

log = logging.getLogger(__name__)

_READERS = 200
"""Inputs that one task reads at the same time."""
_CLAIM_SECONDS = 2.0
_RENEW_SECONDS = 5.0
_REOPEN_SECONDS = 5.0
_CONFIG_SECONDS = 60.0
_IDENTITIES = uuid.UUID("7a2c8f1e-5d0b-5c55-9a64-0f3f6d1f9c11")
"""Namespace of the ids of messages whose records have an identity."""


def run_input_slot(stage: Stage, environment: Settings, stop_address: Address, slot: int) -> None:
    """The body of a Spark task: runs until the driver stops it, or raises so that Spark restarts it."""
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s %(levelname)s {stage.name}[{slot}] %(message)s")
    uvloop.run(InputTask(stage, environment, slot).run(stop_address))


class InputTask:
    """Reads the inputs that it holds leases of."""

    def __init__(self, stage: Stage, environment: Settings, slot: int) -> None:
        assert stage.reading is not None
        self._stage = stage
        self._reading = stage.reading
        self._environment = environment
        self._holder = f"{socket.gethostname()}/{stage.name}-{slot}"
        self._readers: dict[str, tuple[InputLease, asyncio.Task[None]]] = {}

    async def run(self, stop_address: Address) -> None:
        environment = self._environment
        manager: dict[str, Any] = {
            "manager_address": environment.manager_address,
            "service_token": environment.service_token.get_secret_value(),
            "credentials": channel_credentials(environment),
        }
        self._config = ConfigClient(redis_url=environment.redis_url, **manager)
        self._leases = LeaseClient(**manager)
        self._recorder = Recorder(environment.redis_url)
        self._recorder.start()
        self._producer = AsyncProducer(
            {
                "bootstrap.servers": environment.kafka_bootstrap_servers,
                "linger.ms": 5,
                "compression.type": "lz4",
                "message.max.bytes": 4 * 1024 * 1024,
                "reconnect.backoff.max.ms": 1000,
            }
        )
        try:
            await self._config.start(_CONFIG_SECONDS)
            claiming = [asyncio.create_task(self._claim_forever()), asyncio.create_task(self._renew_forever())]
            stop = asyncio.create_task(wait_for_stop(stop_address))
            # A failed loop fails the task, which Spark then restarts.
            done, _ = await asyncio.wait([*claiming, stop], return_when=asyncio.FIRST_COMPLETED)
            await _cancelled([*claiming, stop])
            await _cancelled([task for _, task in self._readers.values()])
            for task in done - {stop}:
                task.result()
        finally:
            await self._producer.close()
            await self._leases.close()
            await self._config.close()
            await self._recorder.close()

    async def _claim_forever(self) -> None:
        while True:
            try:
                room = _READERS - len(self._readers)
                for lease in await self._leases.claim(self._reading, self._holder, room) if room else ():
                    self._start(lease)
            except LeasesUnavailableError as error:
                log.warning("Inputs cannot be claimed at the moment: %s", error)
            await asyncio.sleep(_CLAIM_SECONDS)

    async def _renew_forever(self) -> None:
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            held = {lease.pipeline_id: lease for lease, _ in self._readers.values()}
            if not held:
                continue
            try:
                renewed = {lease.pipeline_id: lease for lease in await self._leases.renew(held.values())}
            except LeasesUnavailableError as error:
                log.warning("Leases cannot be renewed at the moment: %s", error)
                continue
            for pipeline_id, lease in held.items():
                now = renewed.get(pipeline_id)
                reader = self._readers.get(pipeline_id)
                if reader is None or reader[0].token != lease.token:
                    continue  # the reader has ended meanwhile
                if now is None:
                    log.info("The lease of pipeline %s is lost.", pipeline_id)
                    reader[1].cancel()
                elif now.version != lease.version and self._reading is Reading.STREAMING:
                    self._restart(now)

    def _start(self, lease: InputLease, after: asyncio.Task[None] | None = None) -> None:
        """Reads the input, once its former reader has ended."""
        task = asyncio.create_task(self._read(lease, after))
        self._readers[lease.pipeline_id] = (lease, task)

        def forget(_: asyncio.Task[None]) -> None:
            held = self._readers.get(lease.pipeline_id)
            if held is not None and held[1] is task:
                del self._readers[lease.pipeline_id]

        task.add_done_callback(forget)

    def _restart(self, lease: InputLease) -> None:
        """Restarts the reader with the configuration of a new version."""
        _, former = self._readers[lease.pipeline_id]
        former.cancel()
        self._start(lease, after=former)

    async def _read(self, lease: InputLease, after: asyncio.Task[None] | None) -> None:
        """A failure of one input does not affect the others."""
        if after is not None:
            await asyncio.wait([after])
        try:
            if self._reading is Reading.BATCHING:
                await self._read_batch(lease)
            else:
                await self._read_stream(lease)
        except LeaseLostError as error:
            log.info("Pipeline %s: %s", lease.pipeline_id, error)
        except LeasesUnavailableError as error:
            log.warning("The end of a batch of pipeline %s was not recorded: %s", lease.pipeline_id, error)

    async def _read_batch(self, lease: InputLease) -> None:
        """Reads from the breakpoint to the input's end. A failure is recorded with the lease; the batch is retried."""
        try:
            breakpoint = lease.breakpoint
            async with self._opened(lease) as (reader, maker):
                assert isinstance(reader, ReadBatch)
                async for batch in reader.read(breakpoint):
                    await self._produce(lease, maker, batch)
                    breakpoint = batch.breakpoint
        except Exception as error:
            failure = self._failure(lease, error)
            await self._leases.complete(lease, failure=failure)
        else:
            await self._leases.complete(lease, breakpoint=breakpoint)

    async def _read_stream(self, lease: InputLease) -> None:
        """Reads for as long as the lease is held; a stream that ends is opened again."""
        while True:
            try:
                async with self._opened(lease) as (reader, maker):
                    assert isinstance(reader, ReadStream)
                    async for batch in reader.stream():
                        await self._produce(lease, maker, batch)
                        await reader.acknowledge(batch.breakpoint)
            except Exception as error:
                self._failure(lease, error)
            await asyncio.sleep(_REOPEN_SECONDS)

    @contextlib.asynccontextmanager
    async def _opened(self, lease: InputLease) -> AsyncIterator[tuple[Any, MessageMaker]]:
        """The capability that reads the input, open, and the maker of messages from its records."""
        runtime = await self._config.runtime(lease.pipeline_id, lease.version)
        use = runtime.snapshot.config.input
        assert isinstance(use, ConnectorInput)
        reader = use.bind(runtime.connectors[use.connector])
        try:
            await reader.open()
            yield reader, MessageMaker(runtime.snapshot)
        finally:
            await reader.close()

    async def _produce(self, lease: InputLease, maker: MessageMaker, batch: Batch) -> None:
        """Returns once Kafka has acknowledged everything. Raises KafkaException."""
        received_at = utc_now()
        records = [self._record(lease, maker, record, received_at) for record in batch.records]
        await asyncio.gather(
            *(self._producer.send(r.topic, key=r.key, value=r.value, headers=r.headers) for r in records)
        )
        if records:
            self._recorder.count(lease.pipeline_id, events.ACCEPTED, len(records))

    def _record(self, lease: InputLease, maker: MessageMaker, record: InputRecord, received_at: str) -> Record:
        """The message, or a dead letter when the body is not JSON as declared: a bad record does not stop the input."""
        make = functools.partial(
            maker.make,
            record.body,
            received_at=received_at,
            message_id=_message_id(lease.pipeline_id, record.identity),
            key=record.key,
        )
        try:
            return Record.of(maker.topic, make(record.content_type))
        except json.InvalidJsonError as error:
            text = f"The input returned a record that is not JSON: {error}"
            return dead_letter(
                make("application/octet-stream"), stage=self._stage.name, reason=Reason.NOT_JSON, error=text
            )

    def _failure(self, lease: InputLease, error: Exception) -> str:
        """Records the error for the pipeline's page; returns it as a sentence."""
        match error:
            case DeliveryError() | ConfigUnavailableError() | UnknownPipelineError():
                failure = str(error)
            case KafkaException():
                failure = f"Kafka did not acknowledge the batch: {error.args[0].str()}."
            case _:
                log.exception("An input of pipeline %s could not be read.", lease.pipeline_id, exc_info=error)
                failure = str(internal_error(error))
        self._recorder.error(
            lease.pipeline_id, stage="input", reason=Reason.READ_FAILED, message=failure, message_id=""
        )
        return failure


def _message_id(pipeline_id: str, identity: str) -> str:
    """The same id for the same record; empty, which asks for a new id, when the record has no identity."""
    return str(uuid.uuid5(_IDENTITIES, f"{pipeline_id}/{identity}")) if identity else ""


async def _cancelled(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task
