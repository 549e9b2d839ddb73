"""A message's configuration, for stages that cannot work without it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from backend.domain.message import Message
from backend.domain.pipeline import PipelineSnapshot
from backend.manager_api.client import ConfigClient, ConfigUnavailableError, RuntimePipeline

log = logging.getLogger(__name__)

T = TypeVar("T")

_RETRY_SECONDS = 2.0


async def snapshot_of(config: ConfigClient, message: Message) -> PipelineSnapshot:
    """The version that the message was accepted under. Waits, however long, while the configuration cannot be had:
    the message is not its fault. Raises UnknownPipelineError."""
    return await _waited_for(config.version, message)


async def runtime_of(config: ConfigClient, message: Message) -> RuntimePipeline:
    """The same, with the connectors that it uses."""
    return await _waited_for(config.runtime, message)


async def _waited_for(ask: Callable[[str, int], Awaitable[T]], message: Message) -> T:
    while True:
        try:
            return await ask(message.pipeline_id, message.version)
        except ConfigUnavailableError as error:
            log.warning("Waiting for the configuration of pipeline %s: %s", message.pipeline_id, error)
            await asyncio.sleep(_RETRY_SECONDS)
