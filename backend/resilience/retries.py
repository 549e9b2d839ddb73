"""Retries failed attempts according to a policy."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from backend.domain.capabilities import DeliveryError
from backend.domain.retry import RetryPolicy

T = TypeVar("T")

_LONGEST_WAIT_SECONDS = 30.0
"""For a longer wait the message becomes a dead letter: in the window it would hold back the commit."""


class RetriesExhaustedError(Exception):
    """No further attempt is made here. ``due`` and ``retryable`` as for ``dead_letter``, ``rejected`` as for
    ``Undeliverable``."""

    def __init__(self, error: DeliveryError, *, due: float | None = None, retryable: bool = False) -> None:
        super().__init__(str(error))
        self.reason = error.reason
        self.rejected = error.about_message
        self.due = due
        self.retryable = retryable


async def with_retries(
    policy: RetryPolicy, attempt: Callable[[int], Awaitable[T]], *, opened: asyncio.Event, on_retry: Callable[[], None]
) -> T:
    """The result of the first attempt (counted from 1) that raises no DeliveryError. Raises RetriesExhaustedError.

    ``opened`` is set while the breaker is open, which makes waiting pointless: the next attempt reports it.
    """
    number = 0
    while True:
        number += 1
        try:
            return await attempt(number)
        except DeliveryError as error:
            if not error.retryable:
                raise RetriesExhaustedError(error) from None
            if number == policy.attempts:
                due = time.time() + error.retry_after if error.retry_after is not None else None
                raise RetriesExhaustedError(error, due=due, retryable=due is None) from None
            wait = policy.wait(number, error.retry_after)
            if wait > _LONGEST_WAIT_SECONDS:
                raise RetriesExhaustedError(error, due=time.time() + wait) from None
        on_retry()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait):
                await opened.wait()
