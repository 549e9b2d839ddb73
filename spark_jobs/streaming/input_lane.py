"""The input task: one long-running Spark task that reads leased inputs and produces their messages.

It claims leases of inputs that nobody reads, up to the number it can read at the same time, and renews them every few
seconds, which also records how far each reader has come. A reader stops immediately when its lease is lost, since
another task may then read the same input.
"""

import asyncio
import logging
import random
import socket
import time
from collections.abc import Sequence

import uvloop

from backend.domain import limits
from backend.domain.capabilities import Reading
from backend.domain.stages import Stage
from backend.kafka.client.producer import AsyncProducer
from backend.kafka.client.shared_producer import SharedProducer
from backend.manager_api.client import ConfigClient
from backend.manager_api.credentials import manager_access
from backend.manager_api.leases import InputLease, LeaseClient, LeasesUnavailableError
from backend.network import tasks
from backend.settings import Settings
from backend.telemetry.recorder import Recorder
from spark_jobs.streaming.input_reader import InputReader, ReaderServices
from spark_jobs.streaming.slot_process import prepare_process
from spark_jobs.streaming.stop_channel import Address, watched

log = logging.getLogger(__name__)

_MOST_READERS = 1000
"""Inputs that one task reads at the same time."""
_BUSY_READERS = 200
"""Batches among them that may have records in memory, which bounds it. One that has returned nothing for a minute is
not counted, so that inputs that hang hold up no others."""
_MANAGER_CALLS = 8
"""Calls of readers to the manager at the same time, so that many batches that begin together do not overload it."""
_UNACKNOWLEDGED_KIBIBYTES = 256 * 1024
"""What all readers together may have sent that Kafka has not acknowledged, each an equal share. Those that send more
wait."""
_UNACKNOWLEDGED_RECORDS = 1_000_000
"""So many that records of any usual size reach the limit of bytes, which is shared, before this one, which is not."""
_CLAIM_SECONDS = 2.0
"""On average: if all tasks claimed at the same interval, their order would stay the same, and an input that is due soon
after it was read would always be claimed by the same task."""
_RENEW_SECONDS = 5.0
_REFRESH_SECONDS = 15 * 60.0
"""How often a stream's configuration is fetched again, for what was changed elsewhere; other changes are pushed."""
_CONFIG_SECONDS = 60.0


def run_input_slot(stage: Stage, environment: Settings, stop_address: Address, slot: int) -> None:
    """The body of a Spark task: runs until the driver stops it, or raises so that Spark restarts it."""
    prepare_process(stage.name, slot)
    uvloop.run(InputTask(stage, environment, slot).run(stop_address))


class InputTask:
    """Reads the inputs that it holds leases of."""

    def __init__(self, stage: Stage, environment: Settings, slot: int) -> None:
        assert stage.reading is not None
        self._stage = stage
        self._reading = stage.reading
        self._environment = environment
        self._slot = slot
        self._holder = f"{socket.gethostname()}/{stage.name}-{slot}"
        self._readers: dict[str, tuple[InputReader, asyncio.Task[None]]] = {}
        """By the tokens of their leases: several parts of an input may be read here."""
        self._stopping: set[asyncio.Task[None]] = set()
        """Readers that have lost their leases may take a while to end."""
        self._claimed = self._renewed = time.monotonic()

    async def run(self, stop_address: Address) -> None:
        environment = self._environment
        manager = manager_access(environment)
        self._leases = LeaseClient(**manager)
        recorder = Recorder(environment.redis_url)
        recorder.start()
        producer = AsyncProducer(
            {
                **environment.kafka.client(),
                "linger.ms": 5,
                "compression.type": "lz4",
                "message.max.bytes": limits.RECORD_BYTES,
                "queue.buffering.max.kbytes": _UNACKNOWLEDGED_KIBIBYTES,
                "queue.buffering.max.messages": _UNACKNOWLEDGED_RECORDS,
                "reconnect.backoff.max.ms": 1000,
            }
        )
        config = ConfigClient(redis_url=environment.redis_url, **manager)
        calls = asyncio.Semaphore(_MANAGER_CALLS)
        shared = SharedProducer(producer, _UNACKNOWLEDGED_KIBIBYTES * 1024)
        self._services = ReaderServices(self._stage, config, self._leases, shared, recorder, calls)
        try:
            await config.start(_CONFIG_SECONDS)
            self._claiming = asyncio.create_task(self._claim())
            loops = [self._claim_forever(), self._renew_forever()]
            if self._reading is Reading.STREAMING:
                loops += [self._follow_connectors_forever(), self._refresh_forever()]
            stop = await watched(stop_address, environment.service_token, self._slot, self._progress)
            running = [asyncio.create_task(loop) for loop in loops]
            # A failed loop fails the task, which Spark then restarts.
            done, _ = await asyncio.wait([*running, stop], return_when=asyncio.FIRST_COMPLETED)
            await tasks.cancel(*running, stop)
            # What the manager grants to a task that does not hear of it would be read by nobody until it expires.
            await asyncio.wait([self._claiming])
            await asyncio.gather(self._stop(list(self._readers.values())), *self._stopping)
            for task in done - {stop}:
                task.result()
        finally:
            await producer.close()
            await self._leases.close()
            await config.close()
            await recorder.close()

    async def _claim_forever(self) -> None:
        while True:
            await asyncio.shield(self._claiming)
            await asyncio.sleep(random.uniform(0.5, 1.5) * _CLAIM_SECONDS)
            self._claiming = asyncio.create_task(self._claim())

    async def _claim(self) -> None:
        try:
            room = self._room()
            for lease in await self._leases.claim(self._reading, self._holder, room) if room > 0 else ():
                self._start(lease)
        except LeasesUnavailableError as error:
            log.warning("Inputs cannot be claimed at the moment: %s", error)
        self._claimed = time.monotonic()

    def _progress(self) -> dict[str, float]:
        """Seconds since the slower of the two loops, whose calls are limited, has made a turn. How the inputs
        themselves do is recorded with their leases."""
        return {"polled": round(time.monotonic() - min(self._claimed, self._renewed), 1)}

    def _room(self) -> int:
        """How many more inputs can be read."""
        batching = self._reading is Reading.BATCHING
        busy = sum(reader.is_busy for reader, _ in self._readers.values()) if batching else 0
        return min(_BUSY_READERS - busy, _MOST_READERS - len(self._readers))

    async def _renew_forever(self) -> None:
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            self._renewed = time.monotonic()
            held = [(reader, reader.progress()) for reader, _ in self._readers.values()]
            if not held:
                continue
            try:
                leases = await self._leases.renew((reader.lease, progress) for reader, progress in held)
            except LeasesUnavailableError as error:
                log.warning("Leases cannot be renewed at the moment: %s", error)
                continue
            renewed = {lease.token: lease for lease in leases}
            lost = []
            for reader, progress in held:
                lease = renewed.get(reader.lease.token)
                reading = self._readers.get(reader.lease.token)
                if reading is None or reading[0] is not reader:
                    continue  # the reader has ended meanwhile
                if lease is None:
                    log.info("The lease of pipeline %s is lost.", reader.lease.pipeline_id)
                    lost.append(reading)
                    continue
                reader.record(progress)
                if lease.version != reader.lease.version and self._reading is Reading.STREAMING:
                    self._restart(lease)
            if lost:
                self._stopping.add(stopping := asyncio.create_task(self._stop(lost)))
                stopping.add_done_callback(self._stopping.discard)

    async def _follow_connectors_forever(self) -> None:
        """Restarts streams whose connector has changed, and no others."""
        while True:
            await self._services.config.connectors_change()
            for reader, _ in list(self._readers.values()):
                if reader.is_outdated():
                    self._restart(reader.lease)

    async def _refresh_forever(self) -> None:
        while True:
            await asyncio.sleep(_REFRESH_SECONDS)
            await asyncio.gather(*(reader.refresh() for reader, _ in self._readers.values()))

    def _start(self, lease: InputLease, after: tuple[InputReader, asyncio.Task[None]] | None = None) -> None:
        """Reads the input, once its former reader has ended."""
        reader = InputReader(lease, self._reading, self._services)

        async def read() -> None:
            if after is not None:
                former, ending = after
                await asyncio.wait([ending])
                reader.take_over(former)
            await reader.run()

        task = asyncio.create_task(read())
        self._readers[lease.token] = (reader, task)

        def forget(_: asyncio.Task[None]) -> None:
            reading = self._readers.get(lease.token)
            if reading is not None and reading[1] is task:
                del self._readers[lease.token]

        task.add_done_callback(forget)

    def _restart(self, lease: InputLease) -> None:
        """Restarts the reader with the present configuration."""
        former = self._readers[lease.token]
        former[1].cancel()
        self._start(lease, after=former)

    async def _stop(self, reading: Sequence[tuple[InputReader, asyncio.Task[None]]]) -> None:
        """Ends readers, and returns what they still hold, with how far they have come."""
        await tasks.cancel(*(task for _, task in reading))
        try:
            await self._leases.release((reader.lease, reader.progress()) for reader, _ in reading)
        except LeasesUnavailableError as error:
            log.warning("Leases were not returned; others can claim them once they have expired: %s", error)
