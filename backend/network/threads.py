"""Threads for calls of code that may never return."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Thread
from typing import Any, ParamSpec, TypeVar

log = logging.getLogger(__name__)

_GRACE_SECONDS = 1.0
"""For work that is cut at its own time limit, and closes what it opened."""

T = TypeVar("T")
P = ParamSpec("P")


class DaemonThreads(ThreadPoolExecutor):
    """A thread for each call. Neither its shutdown nor the end of the process waits for a call that hangs, as they do
    for the threads of a pool."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        Thread(target=run, name="daemon-call", daemon=True).start()
        return future


def run_with_limit(work: Coroutine[Any, Any, T], seconds: float, name: str) -> T:
    """Runs it on an event loop of its own, in a thread of its own, and returns its result.

    The work is expected to end by itself within so many seconds. Raises TimeoutError soon after them, also when it
    blocks its event loop or waits for a thread that hangs. It is left behind then, with its threads, and the log says
    so of ``name``.
    """

    def run() -> T:
        with asyncio.Runner() as runner:
            runner.get_loop().set_default_executor(DaemonThreads())
            return runner.run(work)

    try:
        return DaemonThreads().submit(run).result(seconds + _GRACE_SECONDS)
    except TimeoutError:
        log.error("%s hangs, and its thread is left behind.", name)
        raise
