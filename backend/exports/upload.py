"""Sends the bytes of a file to its store in parts of one size, and notes what a manifest says of them."""

import asyncio
import contextlib
import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

from backend.domain.capabilities import DeliveryError, Export
from backend.domain.reasons import Reason

_CALL_SECONDS = 120.0
_TRIES = 3
_PAUSE_SECONDS = 1.0


class Upload:
    """One file. The next part is gathered while the last one is sent."""

    def __init__(self, store: Export[Any, Any], handle: Any) -> None:
        self._store = store
        self._handle = handle
        self._waiting = bytearray()
        self._number = 0
        self._sending: asyncio.Task[None] | None = None
        self._hash = hashlib.sha256()
        self.bytes = 0

    @property
    def checksum(self) -> str:
        """Of everything that was added, SHA-256 in hexadecimal."""
        return self._hash.hexdigest()

    async def add(self, data: bytes) -> None:
        """Raises DeliveryError."""
        self._hash.update(data)
        self.bytes += len(data)
        self._waiting += data
        size = self._store.part_bytes
        while len(self._waiting) >= size:
            part = bytes(self._waiting[:size])
            del self._waiting[:size]
            await self._send(part)

    async def finish(self) -> None:
        """Returns once the store has everything. Raises DeliveryError."""
        if self._waiting:
            await self._send(bytes(self._waiting))
        if self._sending is not None:
            await self._sending

    async def cancel(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._sending

    async def _send(self, part: bytes) -> None:
        if self._sending is not None:
            await self._sending
        self._number += 1
        number = self._number
        self._sending = asyncio.create_task(patiently(lambda: self._store.write(self._handle, number, part)))


async def patiently(call: Callable[[], Awaitable[Any]]) -> Any:
    """The call's result, after some tries if need be, each of limited time. Raises DeliveryError."""
    for left in reversed(range(_TRIES)):
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                return await call()
        except TimeoutError:
            text = f"The store did not answer within {_CALL_SECONDS:g} seconds."
            error = DeliveryError(Reason.TIMEOUT, text, retryable=True)
        except DeliveryError as failure:
            error = failure
        if not left or not error.retryable:
            raise error
        await asyncio.sleep(_PAUSE_SECONDS)
    raise AssertionError("unreachable")
