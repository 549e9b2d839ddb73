"""Waiting for processes that start: as long as they live, however busy the machine is."""

import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from backend.runtime.errors import CannotStartError

LIMIT_SECONDS = 600.0
"""The longest start of a process that lives."""
_LOOK_SECONDS = 0.1
_SAY_SECONDS = 15.0
_LOG_LINES = 15
_LOG_BYTES = 100_000


@dataclass(frozen=True)
class Start:
    """A process that has been started.

    ``ready`` asks it with a real request and returns within seconds; ``ended`` whether it is no longer the process
    that was started. Each is called in a thread of its own, so that one that waits holds up no other.
    """

    name: str
    ready: Callable[[], bool]
    ended: Callable[[], bool]
    log: Path


def wait_for_starts(
    starts: Sequence[Start],
    *,
    required: Collection[str] = (),
    failed: bool = False,
    limit: float = LIMIT_SECONDS,
    say: Callable[[str], object] = lambda text: print(text, file=sys.stderr, flush=True),
) -> dict[str, str]:
    """Returns once each is ready, has ended, or was not ready within ``limit`` seconds; ``say`` hears from time to time
    what is waited for. Where some are ``required``, the others are no longer waited for once one has ended, or if
    something else has ``failed`` before: they may need it.

    Returns by name, for each that is not ready, a sentence, with the end of its log unless it may still become ready.
    Raises CannotStartError with that sentence as soon as one of the ``required`` is known not to start.
    """
    if not starts:
        return {}
    began, given_up = time.monotonic(), threading.Event()
    problems: dict[str, str] = {}
    with ThreadPoolExecutor(len(starts), "start") as threads:
        waiting: dict[Future[str], str] = {
            threads.submit(_problem, start, began + limit, given_up): start.name for start in starts
        }
        try:
            while waiting:
                done, _ = wait(waiting, _SAY_SECONDS, FIRST_COMPLETED)
                for future in done:
                    name, problem = waiting.pop(future), future.result()
                    if problem and name in required:
                        raise CannotStartError(problem)
                    if problem:
                        problems[name] = problem
                if (failed or problems) and required and not set(waiting.values()) & set(required):
                    break
                if waiting and not done:
                    names = ", ".join(sorted(waiting.values()))
                    say(f"Waiting for {names} ({time.monotonic() - began:.0f} s).")
        finally:
            given_up.set()
    not_awaited = {name: f"{name} is not ready yet, and goes on starting." for name in waiting.values()}
    return problems | not_awaited


def log_tail(log: Path, lines: int = _LOG_LINES) -> str:
    """The last lines of a log; nothing if there is none."""
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _LOG_BYTES))
        return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])


def _problem(start: Start, deadline: float, given_up: threading.Event) -> str:
    """Nothing as soon as the process is ready."""
    while not given_up.is_set():
        # In this order: a process that ends once it was asked does so before the next look.
        ended = start.ended()
        if not ended and start.ready():
            return ""
        if ended or time.monotonic() > deadline:
            what = "ended while it was starting" if ended else "did not become ready"
            return f"{start.name} {what}. The end of its log, {start.log}:\n{log_tail(start.log)}"
        given_up.wait(_LOOK_SECONDS)
    return ""
