"""How tests wait: for a condition, as long as it may take on a busy machine."""

import asyncio
import os
import subprocess
import time
from collections.abc import Awaitable, Callable, Container, Sequence
from http import HTTPStatus
from pathlib import Path

import pytest
import requests

from backend.runtime.starting import LIMIT_SECONDS as START_SECONDS
from backend.runtime.starting import Start, wait_for_starts

PATIENCE = float(os.environ.get("TESTS_PATIENCE", "1"))
"""Multiplies every limit, for machines that are slower than most."""
LIMIT_SECONDS = 120.0
"""The longest wait for a condition, unless a test needs more. One that passes does not use it."""
SPARK_SECONDS = 300.0
"""The same where Spark has to be started anew first."""

_INTERVAL = 0.05
_PAUSE_RATIO = 0.05
_LONGEST_PAUSE = 1.0


def start_of(name: str, ready: Callable[[], bool], process: subprocess.Popen[bytes] | None, log: Path) -> Start:
    """The start of a process of a test."""
    assert process is not None
    return Start(name, ready, lambda: process.poll() is not None, log)


def wait_for_processes(starts: Sequence[Start]) -> None:
    """Returns once all are ready; raises CannotStartError, with the end of its log, as soon as one has ended."""
    wait_for_starts(starts, required=[start.name for start in starts], limit=START_SECONDS * PATIENCE)


def answers(url: str, statuses: Container[int] = (HTTPStatus.OK,)) -> bool:
    """Whether a server is ready, which may not listen or may hang while it starts."""
    try:
        return requests.get(url, timeout=2).status_code in statuses
    except requests.RequestException:
        return False


def wait_until(
    condition: Callable[[], object],
    timeout: float = LIMIT_SECONDS,
    interval: float = _INTERVAL,
    explain: Callable[[], object] | None = None,
) -> None:
    """Returns once the condition holds; fails the test when it does not in time. ``interval`` is the shortest time
    between two looks; ``explain`` says what is there instead."""
    began = time.monotonic()
    while not condition():
        waited = time.monotonic() - began
        if waited > timeout * PATIENCE:
            pytest.fail(f"Not true within {timeout:g} s: {explain() if explain is not None else condition}")
        time.sleep(_pause(waited, interval))


async def wait_until_async(condition: Callable[[], Awaitable[object]], timeout: float = LIMIT_SECONDS) -> None:
    """The same on an event loop, for a condition that is awaited."""
    began = time.monotonic()
    while not await condition():
        waited = time.monotonic() - began
        if waited > timeout * PATIENCE:
            pytest.fail(f"Not true within {timeout:g} s: {condition}")
        await asyncio.sleep(_pause(waited))


def _pause(waited: float, shortest: float = _INTERVAL) -> float:
    """Seconds until a condition is looked at again: who has waited for long looks less often. A look is often a
    request, and would take the time of the very processes that are waited for."""
    return max(shortest, min(waited * _PAUSE_RATIO, _LONGEST_PAUSE))
