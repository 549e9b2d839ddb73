import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest


def wait_until(
    condition: Callable[[], object],
    timeout: float = 120.0,
    interval: float = 0.05,
    explain: Callable[[], object] | None = None,
) -> None:
    """Returns once the condition holds; fails the test when it does not in time. ``explain`` says what is there
    instead."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"Not true within {timeout:g} s: {explain() if explain is not None else condition}")
        time.sleep(interval)


async def wait_until_async(condition: Callable[[], Awaitable[object]], timeout: float = 120.0) -> None:
    """The same on an event loop, for a condition that is awaited."""
    deadline = time.monotonic() + timeout
    while not await condition():
        if time.monotonic() > deadline:
            pytest.fail(f"Not true within {timeout:g} s: {condition}")
        await asyncio.sleep(0.05)
