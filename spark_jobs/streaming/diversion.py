"""Decides which messages go through the slow lane, so that the order of each key is kept.

Once a message of a pipeline was sent there, the pipeline's later messages of the same partition follow it until the
slow lane has finished the pipeline's messages: both topics have the same partitions. Which pipelines have messages
there is read from the slow lane's topic, after an assignment as well, since a previous owner may have sent them.

A message that were diverted after a later one was handled here would be overtaken by it. So the messages of a pipeline
take turns, in the order they were read.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterator

from confluent_kafka import KafkaException

from backend.network import tasks
from backend.settings import KafkaSettings
from spark_jobs.streaming.backlog import Backlog, BacklogReader
from spark_jobs.streaming.lane import Position

log = logging.getLogger(__name__)

_CHECK_SECONDS = 1.0
_PATIENCE_SECONDS = 10.0
"""How long messages wait, after an assignment, until the slow lane's backlog is read."""


class Diversion:
    """Created, used and closed on one event loop. ``committed`` as in LaneServices."""

    def __init__(self, kafka: KafkaSettings, *, topic: str, group: str, committed: Callable[[int], int]) -> None:
        self._reader = BacklogReader(kafka, topic, group)
        self._committed = committed
        self._last: dict[tuple[int, str], int] = {}
        """The newest diverted message, by partition and pipeline: its offset here."""
        self._backlogs: dict[int, Backlog] = {}
        """The partitions in which pipelines follow, or may have to."""
        self._turns: dict[tuple[int, str], asyncio.Future[None]] = {}
        """The last message that is undecided, by partition and pipeline."""
        self._wake = asyncio.Event()
        self._task = asyncio.create_task(self._check_forever())

    def assigned(self, partition: int) -> None:
        self._last = {key: offset for key, offset in self._last.items() if key[0] != partition}
        self._backlogs[partition] = Backlog()
        self._wake.set()

    @contextlib.contextmanager
    def turn(self, pipeline_id: str, position: Position) -> Iterator[Callable[[], Awaitable[None]]]:
        """While it is undecided which way the message goes. What it yields waits until earlier ones are decided."""
        key = (position.partition, pipeline_id)
        before = self._turns.get(key)
        decided = self._turns[key] = asyncio.get_running_loop().create_future()

        async def comes() -> None:
            if before is not None:
                await asyncio.shield(before)

        def end(_: object = None) -> None:
            decided.set_result(None)
            if self._turns.get(key) is decided:
                del self._turns[key]

        try:
            yield comes
        finally:
            if before is None or before.done():
                end()
            else:  # cancelled, or a dead letter meanwhile; later messages still wait for earlier ones
                before.add_done_callback(end)

    def is_undecided(self, pipeline_id: str, position: Position) -> bool:
        """Whether an earlier message of the pipeline is."""
        return bool(self._turns) and (position.partition, pipeline_id) in self._turns

    async def known(self, position: Position) -> None:
        """Waits until it is known which pipelines have messages in the slow lane; with a large backlog not for
        long."""
        backlog = self._backlogs.get(position.partition)
        if backlog is not None and not backlog.complete.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(backlog.created + _PATIENCE_SECONDS - time.monotonic()):
                    await backlog.complete.wait()

    def follows(self, pipeline_id: str, position: Position, *, waits: bool = False) -> bool:
        """Whether a message has to follow others into the slow lane. ``waits`` says that its steps may wait: then it
        also follows while it is unknown what a previous owner has sent there."""
        if not self._backlogs:
            return False
        backlog = self._backlogs.get(position.partition)
        return backlog is not None and (
            pipeline_id in backlog
            or (position.partition, pipeline_id) in self._last
            or (waits and not backlog.complete.is_set())
        )

    def divert(self, pipeline_id: str, position: Position) -> None:
        """Notes that the message goes through the slow lane."""
        key = (position.partition, pipeline_id)
        self._last[key] = max(position.offset, self._last.get(key, 0))
        if position.partition not in self._backlogs:
            backlog = self._backlogs[position.partition] = Backlog()
            backlog.complete.set()  # the slow lane had caught up
        self._wake.set()

    async def close(self) -> None:
        await tasks.cancel(self._task)
        await asyncio.to_thread(self._reader.close)

    async def _check_forever(self) -> None:
        while True:
            await self._wake.wait()
            if not self._backlogs:
                self._wake.clear()
                continue
            read_all = True
            try:
                read_all = await self._check()
            except KafkaException as error:
                log.warning("The slow lane's progress cannot be determined: %s", error.args[0].str())
            if read_all:
                await asyncio.sleep(_CHECK_SECONDS)

    async def _check(self) -> bool:
        """Whether every partition was read to its end. Raises KafkaException."""
        backlogs = dict(self._backlogs)
        # The reading below finds only messages that were produced before it.
        produced = {key: offset for key, offset in self._last.items() if offset < self._committed(key[0])}
        read = await asyncio.to_thread(self._reader.read, backlogs)
        for partition in read:
            backlog = backlogs[partition]
            if self._backlogs.get(partition) is not backlog:  # assigned again meanwhile
                continue
            backlog.complete.set()
            for key, offset in produced.items():
                if key[0] == partition and key[1] not in backlog and self._last.get(key) == offset:
                    del self._last[key]
            if backlog.is_empty and not any(key[0] == partition for key in self._last):
                del self._backlogs[partition]
        return len(read) == len(backlogs)
