"""A message's configuration, for stages that cannot work without it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from backend.domain.message import Message
from backend.domain.pipeline import PipelineSnapshot
from backend.domain.reasons import Reason
from backend.manager_api.client import ConfigClient, ConfigUnavailableError, RuntimePipeline

T = TypeVar("T")

_RETRY_SECONDS = 2.0


class ErrorRecorder(Protocol):
    """Records errors for the pipelines' pages."""

    def error(self, pipeline_id: str, *, stage: str, reason: str, message: str, message_id: str) -> None: ...


class WaitingConfig:
    """One stage's access to the configuration. It waits as long as that is unavailable, since the message is not at
    fault. The error is recorded once for all waiting messages of a pipeline."""

    def __init__(self, config: ConfigClient, recorder: ErrorRecorder, stage: str) -> None:
        self._config = config
        self._recorder = recorder
        self._stage = stage
        self._waiting: set[str] = set()

    async def version(self, message: Message) -> PipelineSnapshot:
        """The version that the message was accepted under. Raises UnknownPipelineError."""
        return await self._wait_for(self._config.version, message)

    async def runtime(self, message: Message) -> RuntimePipeline:
        """The same with the connectors that it uses. Raises UnknownPipelineError."""
        return await self._wait_for(self._config.runtime, message)

    async def _wait_for(self, fetch: Callable[[str, int], Awaitable[T]], message: Message) -> T:
        while True:
            try:
                configuration = await fetch(message.pipeline_id, message.version)
            except ConfigUnavailableError as error:
                self._note(message, error)
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                self._waiting.discard(message.pipeline_id)
                return configuration

    def _note(self, message: Message, error: ConfigUnavailableError) -> None:
        if message.pipeline_id in self._waiting:
            return
        self._waiting.add(message.pipeline_id)
        self._recorder.error(
            message.pipeline_id,
            stage=self._stage,
            reason=Reason.CONFIGURATION_UNAVAILABLE,
            message=str(error),
            message_id=message.id,
        )
