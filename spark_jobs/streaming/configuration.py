"""A message's configuration, for stages that cannot work without it."""

import asyncio
import logging

from backend.domain.message import Message
from backend.domain.pipeline import PipelineSnapshot
from backend.manager_api.client import ConfigClient, ConfigUnavailableError

log = logging.getLogger(__name__)

_RETRY_SECONDS = 2.0


async def snapshot_of(config: ConfigClient, message: Message) -> PipelineSnapshot:
    """The version that the message was accepted under. Waits, however long, while the configuration cannot be had:
    the message is not its fault. Raises UnknownPipelineError."""
    while True:
        try:
            return await config.version(message.pipeline_id, message.version)
        except ConfigUnavailableError as error:
            log.warning("Waiting for the configuration of pipeline %s: %s", message.pipeline_id, error)
            await asyncio.sleep(_RETRY_SECONDS)
