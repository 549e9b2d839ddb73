"""The connection of an output to its receiver: opened once, used by many messages, closed when it is idle."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from typing import Any

from backend.domain.capabilities import Deliver, DeliverBatch, DeliveryError, Receipt, internal_error
from backend.domain.message import Message
from backend.domain.pipeline import RuntimeOutput
from backend.domain.reasons import Reason

log = logging.getLogger(__name__)

Capability = Deliver[Any, Any] | DeliverBatch[Any, Any]


class DeliveryClient:
    """One configuration of an output, joined with its connector. Made, used and closed on one event loop.

    Whatever a connector raises becomes a DeliveryError, and no secret is in it.
    """

    def __init__(self, runtime: RuntimeOutput) -> None:
        self.runtime = runtime
        self.in_flight = 0
        self.last_used = time.monotonic()
        self.secrets: list[str] = []
        self._opening: asyncio.Task[Capability] | None = None
        self._ready: Any = None
        """The capability, once it is open."""
        capability = self._bound()
        self.batched = isinstance(capability, DeliverBatch)
        """Whether messages are delivered in batches."""
        self.atomic = isinstance(capability, DeliverBatch) and capability.atomic

    def serves(self, runtime: RuntimeOutput) -> bool:
        """Whether that configuration may use this client."""
        if runtime is self.runtime:
            return True
        if runtime != self.runtime:
            return False
        self.runtime = runtime  # fetched again from the manager: the next comparison is of identities
        return True

    async def deliver(self, message: Message) -> Receipt:
        """Raises DeliveryError."""
        try:
            async with asyncio.timeout(self.runtime.config.timeout_seconds):
                capability: Any = self._ready or await self._capability()
                receipt: Receipt = await capability.deliver(message)
                return receipt
        except Exception as error:
            raise self._as_delivery_error(error) from None

    async def deliver_batch(self, messages: Sequence[Message]) -> Sequence[Receipt | DeliveryError]:
        """One result for each message. Raises DeliveryError when there is none."""
        try:
            async with asyncio.timeout(self.runtime.config.timeout_seconds):
                capability: Any = self._ready or await self._capability()
                results = await capability.deliver(messages)
            return self._checked(results, len(messages))
        except Exception as error:
            raise self._as_delivery_error(error) from None

    async def deliver_one(self, message: Message) -> Receipt:
        """The message by itself, whether or not the connector takes batches. Raises DeliveryError."""
        if not self.batched:
            return await self.deliver(message)
        result = (await self.deliver_batch([message]))[0]
        if isinstance(result, DeliveryError):
            raise result
        return result

    async def close(self) -> None:
        if self._opening is None:
            return
        try:
            await (await self._opening).close()
        except Exception as error:
            if not isinstance(error, DeliveryError):  # otherwise it never opened
                log.exception("An output's client could not be closed.")

    def _checked(self, results: Sequence[Receipt | DeliveryError], expected: int) -> Sequence[Receipt | DeliveryError]:
        if len(results) != expected:
            raise RuntimeError(f"The connector gave {len(results)} results for {expected} messages.")
        return [result.without(self.secrets) if isinstance(result, DeliveryError) else result for result in results]

    async def _capability(self) -> Capability:
        """Opened by the first message; the next attempt opens it anew when that failed. Raises DeliveryError."""
        opening = self._opening
        if opening is None or (opening.done() and opening.exception() is not None):
            opening = self._opening = asyncio.create_task(self._open())
        if opening.done():
            return opening.result()
        return await asyncio.shield(opening)

    def _as_delivery_error(self, error: Exception) -> DeliveryError:
        if isinstance(error, DeliveryError):
            return error.without(self.secrets)
        if isinstance(error, TimeoutError):
            seconds = self.runtime.config.timeout_seconds
            return DeliveryError(Reason.TIMEOUT, f"No answer within {seconds:g} seconds.", retryable=True)
        log.error("A connector of type %s failed unexpectedly.", self.runtime.connector.type, exc_info=error)
        return internal_error(error)

    def _bound(self) -> Capability | None:
        """None when the configuration is refused: each delivery then fails with the reason."""
        try:
            return self.runtime.config.bind(self.runtime.connector)  # type: ignore[no-any-return]
        except Exception:
            return None

    async def _open(self) -> Capability:
        capability: Capability = self.runtime.config.bind(self.runtime.connector)
        self.secrets = capability.secrets()
        try:
            await capability.open()
        except BaseException:
            with contextlib.suppress(Exception):
                await capability.close()
            raise
        self._ready = capability
        return capability
