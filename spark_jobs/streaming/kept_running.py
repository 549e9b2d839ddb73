"""Keeps the parts of a stage running: what fails is run again, after a growing pause, without the other parts."""

import itertools
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import InheritableThread, SparkContext

from spark_jobs.streaming.stop_channel import StopChannel

log = logging.getLogger("spark_jobs")

_RUNS_WELL_SECONDS = 60.0
_LONGEST_PAUSE_SECONDS = 30.0
_SILENCE_SECONDS = 20.0
"""A task reports every two seconds; one that is silent for longer is hung and is killed."""
_START_SECONDS = 60.0
_STALLED_SECONDS = 30.0
"""After so long without progress everybody is told."""
_POLL_SECONDS = 60.0
"""A poll takes a quarter of a second, and the longest legitimate pause between two 30 seconds; after this the task is
hung and is killed."""
_OLDEST_SECONDS = 3600.0
"""Twenty attempts of two minutes, and the pauses between them, take less."""


class KeptRunning:
    """Runs ``body`` in a thread of its own until it is stopped. A body that has run well for a minute is run again at
    once; otherwise the pauses grow up to 30 seconds."""

    def __init__(self, name: str, body: Callable[[], None], stopped: threading.Event) -> None:
        self.name = name
        self.began = time.monotonic()
        self.failures = 0
        self.error = ""
        """Why it failed last."""
        self._body = body
        self._stopped = stopped
        self._thread = InheritableThread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def problem(self) -> str:
        """Empty while it runs well. A failure stays reported until its successor has run well.

        Everybody sees it; the exception's text, which may quote messages or addresses, is in the log only.
        """
        if self.failures == 0 or time.monotonic() - self.began > _RUNS_WELL_SECONDS:
            return ""
        return f"{self.name} has failed and was started again ({self.failures}); the application's log says why."

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.began = time.monotonic()
            error = "it ended although nothing stopped it"
            try:
                self._body()
            except Exception as failure:
                error = _cause(failure)
            if self._stopped.is_set():
                return
            ran_well = time.monotonic() - self.began > _RUNS_WELL_SECONDS
            self.failures = 1 if ran_well else self.failures + 1
            self.began, self.error = time.monotonic(), error
            log.error("%s failed (%d): %s", self.name, self.failures, error)
            if self.failures > 1:
                self._stopped.wait(min(2.0 ** (self.failures - 2), _LONGEST_PAUSE_SECONDS))


class LaneSlot:
    """One lane task, as a Spark job of its own: Spark counts the failures of a task over its whole life, however
    long that is, and the slots of a stage must not end together."""

    def __init__(
        self,
        context: SparkContext,
        stage: str,
        slot: int,
        body: Callable[[Iterable[int]], None],
        channel: StopChannel,
    ) -> None:
        self._context = context
        self._stage = stage
        self._slot = slot
        self._body = body
        self._channel = channel
        self._killed: int | None = None
        self._absent_since: float | None = None
        self._hung_at = -math.inf
        self._kept = KeptRunning(f"{stage}[{slot}]", self._run, channel.stopped)

    def problem(self) -> str:
        """Empty while it makes progress. Kills a task that is hung, which Spark then starts again."""
        report = self._channel.report(self._slot)
        if self._channel.stopped.is_set():
            return ""
        if report is None:
            now = time.monotonic()
            self._absent_since = self._absent_since or now
            late = now - self._absent_since > _START_SECONDS
            return self._kept.problem() or (f"{self._kept.name} has not started for a minute." if late else "")
        self._absent_since = None
        hung = ""
        if report.age > _SILENCE_SECONDS:
            hung = f"{self._kept.name} is hung: it has reported no progress for {report.age:.0f} s."
        elif report.progress.get("polled", 0.0) > _POLL_SECONDS:
            hung = f"{self._kept.name} is hung: it has read nothing for {report.progress['polled']:.0f} s."
        if hung:
            self._hung_at = time.monotonic()
            self._kill(report.task, hung)
            return hung
        polled, committing = report.progress.get("polled", 0.0), report.progress.get("committing", 0.0)
        if polled > _STALLED_SECONDS:
            return f"{self._kept.name} has read nothing for {polled:.0f} s."
        turned = report.progress.get("turned", 0.0)
        if turned > _STALLED_SECONDS:
            return f"{self._kept.name} makes no progress: it has been at the same step for {turned:.0f} s."
        if committing > _STALLED_SECONDS:
            return f"{self._kept.name} has waited {committing:.0f} s for a transaction of Kafka."
        oldest, held_back = report.progress.get("oldest", 0.0), report.progress.get("held_back", 0.0)
        if held_back > _STALLED_SECONDS:
            return (
                f"{self._kept.name} has read nothing for {held_back:.0f} s: its window is full of messages that have "
                f"not ended, and the oldest was read {oldest:.0f} s ago."
            )
        if oldest > _OLDEST_SECONDS:
            return f"{self._kept.name} has a message that was read {oldest:.0f} s ago and has not ended."
        return self._kept.problem() or self._replaced()

    def _replaced(self) -> str:
        """A hung task stays reported until its successor has run well, as a failure does: its kill takes a second."""
        was_hung = time.monotonic() - self._hung_at < _RUNS_WELL_SECONDS
        return f"{self._kept.name} was hung and was started again; the application's log says why." if was_hung else ""

    def join(self) -> None:
        self._kept.join()

    def cancel_unless_running(self) -> None:
        """A task that waits for a task slot may never get one, and could not be joined."""
        if self._channel.report(self._slot) is None:
            self._context.cancelJobGroup(self._kept.name)

    def _run(self) -> None:
        name = f"{self._stage}[{self._slot}]"
        self._context.setJobGroup(name, f"lane {name}")
        self._context.parallelize([self._slot], 1).foreachPartition(self._body)

    def _kill(self, task: int | None, why: str) -> None:
        """Works on a stopped process, too, on whatever host: Spark's executor sends its Python worker SIGKILL."""
        if task is not None and task != self._killed:
            self._killed = task
            log.error("%s It is killed.", why)
            self._context._jsc.sc().killTaskAttempt(task, False, why)  # type: ignore[union-attr]


def _cause(failure: Exception) -> str:
    """One line: of a task's failure the exception that it raised, if it was one of Python."""
    if not isinstance(failure, Py4JJavaError):
        return str(failure).partition("\n")[0]
    first, *more = str(failure.java_exception.getMessage()).splitlines()
    trace = list(itertools.takewhile(str.strip, more)) if "PythonException" in first else []
    return trace[-1] if trace else first.partition("): ")[2] or first  # without the numbers of tasks
