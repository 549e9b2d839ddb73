"""A message's configuration, for stages that cannot work without it."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from backend.domain.message import Message
from backend.domain.pipeline import PipelineSnapshot
from backend.domain.reasons import Reason
from backend.domain.records import Record, dead_letter
from backend.manager_api.client import ConfigClient, ConfigUnavailableError, RuntimePipeline, UnknownPipelineError

T = TypeVar("T")
_Task = asyncio.Task[Any]

_RETRY_SECONDS = 2.0
_SLOW_SECONDS = 1.0
_EVICTED_SECONDS = 15.0


class EvictedError(Exception):
    """Others needed the room in which the message waited for its configuration."""

    reason = Reason.CONFIGURATION_UNAVAILABLE

    def __init__(self) -> None:
        super().__init__(
            "The configuration was unavailable while other pipelines waited; the message is redelivered automatically."
        )
        self.due = time.time() + _EVICTED_SECONDS

    def dead_letter(self, message: Message, *, stage: str, output: str = "") -> Record:
        return dead_letter(message, stage=stage, reason=self.reason, error=str(self), output=output, due=self.due)


class ErrorRecorder(Protocol):
    """Records errors for the pipelines' pages."""

    def error(self, pipeline_id: str, *, stage: str, reason: str, message: str, message_id: str) -> None: ...


class ConfigQueue:
    """A pipeline's messages that wait for their configuration, as a party to the lane's window (shares.py)."""

    usual_pace = 0.0
    drain_seconds = 0.0
    is_behind = False

    def __init__(self, evicted: set[_Task]) -> None:
        self.bytes_in_flight = 0
        self.stuck_seconds = 0.0
        self._tasks: list[_Task] = []
        self._evicted = evicted

    @property
    def in_flight(self) -> int:
        return len(self._tasks)

    def add(self, task: _Task, size: int) -> None:
        self._tasks.append(task)
        self.bytes_in_flight += size

    def measure(self) -> None:
        """Whoever waits here has no pace."""

    def evict_queue(self) -> None:
        """All of them, so that none overtakes another of its key. They are cancelled, since they may wait for one thing
        after another."""
        self._evicted.update(self._tasks)
        for task in self._tasks:
            task.cancel()


class WaitingConfig:
    """One stage's access to the configuration. It waits while that is unavailable, since the message is not at fault;
    messages that others need the room of are evicted. The error is recorded once for all waiting messages of a
    pipeline."""

    def __init__(self, config: ConfigClient, recorder: ErrorRecorder, stage: str) -> None:
        self._config = config
        self._recorder = recorder
        self._stage = stage
        self._unavailable: set[str] = set()
        """Pipelines that wait for a configuration which could not be had."""
        self._served: set[str] = set()
        # Every message passes here, so what is kept of it has to cost little.
        self._waiting: dict[_Task, tuple[Message, float]] = {}
        self._evicted: set[_Task] = set()

    async def version(self, message: Message) -> PipelineSnapshot:
        """The version that the message was accepted under. Raises UnknownPipelineError, EvictedError."""
        return await self._wait_for(self._config.version, message)

    async def runtime(self, message: Message, *, after: asyncio.Future[None] | None = None) -> RuntimePipeline:
        """The same with the connectors that it uses, once ``after`` is done. Raises UnknownPipelineError,
        EvictedError."""
        return await self._wait_for(self._config.runtime, message, after)

    def runtime_now(self, message: Message) -> RuntimePipeline | None:
        """The same if there is nothing to wait for, else None: nearly every message waits for nothing, and waiting has
        its cost even when it is over at once."""
        runtime = self._config.fresh_runtime(message.pipeline_id, message.version)
        if runtime is not None:
            self._note_served(message.pipeline_id)
        return runtime

    def queues(self) -> list[ConfigQueue]:
        """What waits now. A pipeline's queue is stuck once its configuration was found to be unavailable, or did not
        come within a second, and another pipeline's was there: while the manager provides none, nobody needs room."""
        queues: dict[str, ConfigQueue] = {}
        now = time.monotonic()
        for task, (message, since) in self._waiting.items():  # the oldest first
            pipeline_id = message.pipeline_id
            queue = queues.get(pipeline_id)
            if queue is None:
                queue = queues[pipeline_id] = ConfigQueue(self._evicted)
                is_late = pipeline_id in self._unavailable or now - since > _SLOW_SECONDS
                if is_late and len(self._served) > (pipeline_id in self._served):
                    queue.stuck_seconds = math.inf
            queue.add(task, len(message.body))
        return list(queues.values())

    async def _wait_for(
        self,
        fetch: Callable[[str, int], Awaitable[T]],
        message: Message,
        after: asyncio.Future[None] | None = None,
    ) -> T:
        task: _Task = asyncio.current_task()  # type: ignore[assignment]
        self._waiting[task] = message, time.monotonic()
        try:
            if after is not None:
                await asyncio.shield(after)
            while True:
                try:
                    configuration = await fetch(message.pipeline_id, message.version)
                except ConfigUnavailableError as error:
                    self._note_unavailable(message, error)
                    await asyncio.sleep(_RETRY_SECONDS)
                else:
                    self._note_served(message.pipeline_id)
                    return configuration
        except UnknownPipelineError:
            self._unavailable.discard(message.pipeline_id)
            self._served.discard(message.pipeline_id)
            raise
        except asyncio.CancelledError:
            if task not in self._evicted:
                raise
            self._evicted.discard(task)
            task.uncancel()
            raise EvictedError from None
        finally:
            del self._waiting[task]

    def _note_served(self, pipeline_id: str) -> None:
        self._unavailable.discard(pipeline_id)
        self._served.add(pipeline_id)

    def _note_unavailable(self, message: Message, error: ConfigUnavailableError) -> None:
        if message.pipeline_id in self._unavailable:
            return
        self._unavailable.add(message.pipeline_id)
        self._recorder.error(
            message.pipeline_id,
            stage=self._stage,
            reason=Reason.CONFIGURATION_UNAVAILABLE,
            message=str(error),
            message_id=message.id,
        )
