"""Messages that their source hides from other readers until they are acknowledged."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn

from backend.domain.capabilities import DeliveryError

log = logging.getLogger(__name__)


async def hold_forever(seconds: float, extend: Callable[[], Awaitable[None]], source: str) -> NoReturn:
    """Extends the time for which they are hidden, every so many seconds. What cannot be held is delivered again, as
    messages with the same ids."""
    while True:
        await asyncio.sleep(seconds)
        try:
            await extend()
        except Exception as error:
            reason = error if isinstance(error, DeliveryError) else type(error).__name__
            log.warning("Messages of %s could not be held: %s", source, reason)
