"""The connection of an output to its receiver: opened once, used by many messages, closed when it is idle."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from typing import Any

from backend.delivery.time_limit import TimeLimit
from backend.domain.capabilities import (
    Capability,
    Collect,
    CollectedDocument,
    Deliver,
    DeliverBatch,
    DeliveryError,
    Receipt,
    internal_error,
)
from backend.domain.collected import collected_record
from backend.domain.connector import connectors
from backend.domain.message import Message
from backend.domain.pipeline import RuntimeOutput
from backend.domain.reasons import Reason
from backend.domain.records import Record, staged_record
from backend.domain.registry import UnknownComponentError

log = logging.getLogger(__name__)

_Delivering = Deliver[Any, Any] | DeliverBatch[Any, Any]


class DeliveryClient:
    """One configuration of an output, joined with its connector. Made, used and closed on one event loop.

    Whatever a connector raises becomes a DeliveryError, and no secret is in it.
    """

    def __init__(self, runtime: RuntimeOutput) -> None:
        self.runtime = runtime
        self._time_limit = TimeLimit(runtime.config.timeout_seconds)
        self.in_flight = 0
        self.last_used = time.monotonic()
        self.secrets: list[str] = []
        self._opening: asyncio.Task[_Delivering] | None = None
        self._ready: Any = None
        """The capability, once it is open."""
        self.stages = self._is_staged()
        """Whether the output stores files or keeps a collection. A message is delivered to it once it is handed over to
        the stage that does so, which happens in the transaction that commits its outcome."""
        self.batched, self.atomic = self._forms()
        """Whether messages are delivered in batches, and whether the receiver takes all of one or nothing."""

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
            with self._time_limit:
                capability: Any = self._ready or await self._capability()
                receipt: Receipt = await capability.deliver(message)
            return _checked_receipt(receipt)
        except Exception as error:
            raise self._as_delivery_error(error) from None

    def document(self, message: Message) -> CollectedDocument | None:
        """What the message is in the output's collection; None if the output stores files. Raises DeliveryError."""
        if not self._collects():
            return None
        try:
            if self._ready is None:
                self._ready = self.runtime.config.bind(self.runtime.connector)
            document: CollectedDocument = self._ready.document(message)
        except Exception as error:
            raise self._as_delivery_error(error) from None
        return document

    def handed_over(self, message: Message, document: CollectedDocument | None, *, workspace_id: str) -> Record:
        """What hands a message over to the stage that stores files or collections; ``document`` is what it is there."""
        if not self._collects():
            return staged_record(message, workspace_id=workspace_id, output=self.runtime.name)
        assert document is not None
        return collected_record(
            message, document, collection=str(self.runtime.config.connector), workspace_id=workspace_id
        )

    async def deliver_batch(self, messages: Sequence[Message]) -> Sequence[Receipt | DeliveryError]:
        """One result for each message. Raises DeliveryError when there is none."""
        try:
            with self._time_limit:
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
        return [
            result.without(self.secrets) if isinstance(result, DeliveryError) else _checked_receipt(result)
            for result in results
        ]

    async def _capability(self) -> _Delivering:
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

    def _is_staged(self) -> bool:
        """By the connector's type alone: while its secrets cannot be read, messages are staged all the same."""
        kind = self._kind()
        return kind is not None and kind.handed_over

    def _collects(self) -> bool:
        kind = self._kind()
        return kind is not None and issubclass(kind, Collect)

    def _kind(self) -> type[Capability[Any, Any]] | None:
        try:
            return self.runtime.config.capability_of(connectors.get(self.runtime.connector.type))
        except UnknownComponentError:
            return None

    def _forms(self) -> tuple[bool, bool]:
        try:
            capability = self.runtime.config.bind(self.runtime.connector)
            return isinstance(capability, DeliverBatch), isinstance(capability, DeliverBatch) and capability.atomic
        except Exception:  # the configuration is refused: each delivery fails with the reason
            return False, False

    async def _open(self) -> _Delivering:
        capability: _Delivering = self.runtime.config.bind(self.runtime.connector)
        self.secrets = capability.secrets()
        try:
            await capability.open()
        except BaseException:
            with contextlib.suppress(Exception):
                await capability.close()
            raise
        self._ready = capability
        return capability


def _checked_receipt(receipt: Any) -> Receipt:
    if not isinstance(receipt, Receipt):
        raise TypeError(f"The connector gave {type(receipt).__name__} instead of a receipt.")
    return receipt
