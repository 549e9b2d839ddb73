"""Stages the messages of outputs that store files, and stores the files.

One long-running Spark task per slot. It stages its partitions of the exporter's topic, writes files that are due, and
removes staged parts that are not needed any more.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from itertools import islice

import uvloop

from backend.domain.stages import EXPORTER
from backend.exports.stager import Stager
from backend.exports.staging_store import staging_store
from backend.exports.writer import ExportWriter
from backend.manager_api.client import ConfigClient
from backend.manager_api.credentials import manager_access
from backend.manager_api.exports import ExportClient, HeldExport, ManagerUnavailableError
from backend.network import tasks
from backend.settings import Settings
from backend.telemetry.recorder import Recorder
from spark_jobs.streaming.slot_process import prepare_process
from spark_jobs.streaming.stop_channel import Address, watched

log = logging.getLogger(__name__)

_WRITERS = 4
"""Files that one task writes at the same time, so that a slow store does not hold up others."""
_CLAIM_SECONDS = 2.0
_RENEW_SECONDS = 5.0
_CLEAN_SECONDS = 5.0
_SWEEP_SECONDS = 3600.0
_UNREGISTERED_SECONDS = 86400.0
"""A part that was written so long ago and is still not registered never will be."""
_PATHS = 1000
_CONFIG_SECONDS = 60.0


def run_slot(
    environment: Settings, stop_address: Address, slot: int, at: Callable[[str], None] = lambda step: None
) -> None:
    """The body of a Spark task: runs until the driver stops it, or raises so that Spark restarts it. ``at`` is told
    the name of each step that is done."""
    prepare_process(EXPORTER.name, slot)
    uvloop.run(ExporterTask(environment, slot, at).run(stop_address))


class ExporterTask:
    """Stages, writes and cleans up."""

    def __init__(self, environment: Settings, slot: int, at: Callable[[str], None]) -> None:
        self._environment = environment
        self._slot = slot
        self._at = at
        self._holder = f"{socket.gethostname()}/{EXPORTER.name}-{slot}"
        self._staging = staging_store(environment.staging_url)
        self._writing: dict[str, tuple[HeldExport, asyncio.Task[None]]] = {}

    async def run(self, stop_address: Address) -> None:
        environment = self._environment
        manager = manager_access(environment)
        config = ConfigClient(redis_url=environment.redis_url, **manager)
        self._client = ExportClient(**manager)
        recorder = Recorder(environment.redis_url)
        recorder.start()
        self._writer = ExportWriter(
            client=self._client, config=config, staging=self._staging, recorder=recorder, at=self._at
        )
        stager = Stager(
            kafka=environment.kafka,
            name=f"{EXPORTER.group}-{self._slot}",
            client=self._client,
            store=self._staging,
            at=self._at,
        )
        try:
            await config.start(_CONFIG_SECONDS)
            stop = await watched(stop_address, environment.service_token, self._slot, stager.progress)
            loops = [
                asyncio.create_task(work)
                for work in (stager.run(), self._claim_forever(), self._renew_forever(), self._clean_forever())
            ]
            # A failed loop fails the task, which Spark then restarts.
            done, _ = await asyncio.wait([*loops, stop], return_when=asyncio.FIRST_COMPLETED)
            writing = [task for _, task in self._writing.values()]
            await tasks.cancel(*loops, stop, *writing)
            for task in done - {stop}:
                task.result()
        finally:
            await self._client.close()
            await config.close()
            await recorder.close()

    async def _claim_forever(self) -> None:
        while True:
            export = None
            try:
                if len(self._writing) < _WRITERS:
                    export = await self._client.claim(self._holder)
            except ManagerUnavailableError as error:
                log.warning("Files cannot be claimed at the moment: %s", error)
            if export is None:
                await asyncio.sleep(_CLAIM_SECONDS)
                continue
            self._at("claimed")
            self._start(export)

    def _start(self, export: HeldExport) -> None:
        task = asyncio.create_task(self._writer.run(export))
        self._writing[export.id] = (export, task)
        task.add_done_callback(lambda _: self._writing.pop(export.id, None))

    async def _renew_forever(self) -> None:
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            held = dict(self._writing)
            if not held:
                continue
            try:
                renewed = await self._client.renew([export for export, _ in held.values()])
            except ManagerUnavailableError as error:
                log.warning("Exports cannot be renewed at the moment: %s", error)
                continue
            for export_id in held.keys() - renewed:
                task = held[export_id][1]
                if not task.done():
                    log.info("Export %s is lost.", export_id)
                    task.cancel()

    async def _clean_forever(self) -> None:
        loop = asyncio.get_running_loop()
        next_sweep = loop.time()
        while True:
            try:
                await self._remove_unused()
                if loop.time() >= next_sweep:
                    await self._remove_unregistered()
                    next_sweep = loop.time() + _SWEEP_SECONDS
            except (ManagerUnavailableError, OSError) as error:
                log.warning("Staged parts cannot be removed at the moment: %s", error)
            await asyncio.sleep(_CLEAN_SECONDS)

    async def _remove_unused(self) -> None:
        parts = await self._client.unused_parts(_PATHS)
        if not parts:
            return
        await asyncio.to_thread(self._staging.delete, list(parts.values()))
        self._at("parts_deleted")
        await self._client.forget_parts(parts)
        self._at("parts_forgotten")

    async def _remove_unregistered(self) -> None:
        """Parts whose writer was killed before it registered them, and temporary files."""
        old = self._staging.older_than(_UNREGISTERED_SECONDS)
        while paths := await asyncio.to_thread(lambda: list(islice(old, _PATHS))):
            unknown = await self._client.unknown_paths(paths)
            await asyncio.to_thread(self._staging.delete, unknown)
