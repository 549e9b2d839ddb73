"""Starting is no matter of the clock: what is alive is waited for, what has ended is reported at once."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backend.runtime.errors import CannotStartError
from backend.runtime.installation import down
from backend.runtime.layout import Layout
from backend.runtime.stack import Process
from backend.runtime.starting import Start, wait_for_starts
from backend.runtime.supervisor import Supervisor

LONG = 600.0
"""Far above what these tests take."""


def start(name: str, ready: Callable[[], bool], *, ended: Callable[[], bool] = lambda: False) -> Start:
    return Start(name, ready, ended, Path("no.log"))


def after(calls: int) -> Callable[[], bool]:
    """True from that call on."""
    left = iter(range(calls))
    return lambda: next(left, None) is None


def test_neighbours_1_a_process_that_lives_is_waited_for() -> None:
    assert wait_for_starts([start("slow", after(5)), start("quick", after(0))], limit=LONG) == {}


def test_nothing_to_start_is_ready() -> None:
    assert wait_for_starts([]) == {}


def test_neighbours_1_a_process_that_has_ended_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen([sys.executable, "-c", "print('begun'); exit('no such file')"], stderr=output)
    ended = Start("manager", lambda: False, lambda: process.poll() is not None, log)
    problems = wait_for_starts([ended, start("console", after(3))], limit=LONG)
    assert problems == {
        "manager": f"manager ended while it was starting. The end of its log, {log}:\nno such file",
    }


def test_what_is_required_ends_the_wait_at_once() -> None:
    others = threading.Event()  # never ready: without an end at once, the limit is waited for
    with pytest.raises(CannotStartError, match="console ended while it was starting"):
        wait_for_starts(
            [start("worker", others.is_set), start("console", lambda: False, ended=after(2))],
            required=["console"],
            limit=LONG,
        )


def test_neighbours_1_once_one_has_ended_only_what_is_required_is_waited_for() -> None:
    problems = wait_for_starts(
        [
            start("manager", lambda: False, ended=after(1)),
            start("ingest", lambda: False),
            start("console", after(5)),
        ],
        required=["console"],
        limit=LONG,
    )
    assert problems.keys() == {"manager", "ingest"}
    assert problems["manager"].startswith("manager ended while it was starting.")
    assert problems["ingest"] == "ingest is not ready yet, and goes on starting."


def test_neighbours_1_after_a_failure_only_what_is_required_is_waited_for() -> None:
    starts = [start("ingest", lambda: False), start("console", after(3))]
    problems = wait_for_starts(starts, required=["console"], failed=True, limit=LONG)
    assert problems == {"ingest": "ingest is not ready yet, and goes on starting."}


def test_the_limit_is_for_what_lives_and_is_not_ready() -> None:
    problems = wait_for_starts([start("ingest", lambda: False), start("console", after(1))], limit=0.5)
    assert problems.keys() == {"ingest"}
    assert problems["ingest"].startswith("ingest did not become ready.")


def test_a_check_that_waits_holds_up_no_other() -> None:
    quick = threading.Event()

    def slow() -> bool:
        return quick.wait(LONG)  # is answered only once the other has been asked

    def asked() -> bool:
        quick.set()
        return True

    assert wait_for_starts([start("slow", slow), start("quick", asked)], limit=LONG) == {}


def test_it_says_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.runtime.starting._SAY_SECONDS", 0.01)
    said: list[str] = []
    wait_for_starts([start("manager", lambda: bool(said)), start("ingest", after(0))], limit=LONG, say=said.append)
    assert said[-1].startswith("Waiting for manager (")


def test_an_error_of_a_check_is_no_silence() -> None:
    def broken() -> bool:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        wait_for_starts([start("broken", broken)], limit=LONG)


@pytest.fixture
def layout(tmp_path: Path) -> Iterator[Layout]:
    layout = Layout(tmp_path)
    layout.create()
    yield layout
    down(layout)


def process(name: str, code: str, ready: Callable[[], bool]) -> Process:
    return Process(name, [sys.executable, "-c", code], ready)


def test_supervised_processes_start_side_by_side_and_one_that_ends_is_named(layout: Layout) -> None:
    marker = layout.var / "written"
    processes = [
        process(
            "writes", f"import pathlib, time; pathlib.Path({str(marker)!r}).touch(); time.sleep(600)", marker.exists
        ),
        process("ends", "print('the port is taken', flush=True); raise SystemExit(3)", lambda: False),
    ]
    supervisor = Supervisor(layout)
    supervisor.start(processes, {})
    began = time.monotonic()
    supervisor.start_processes(processes)
    problems = supervisor.wait_until_ready(processes, limit=LONG)
    assert problems.keys() == {"ends"}
    assert "ends ended while it was starting." in problems["ends"]
    assert "the port is taken" in problems["ends"]
    assert time.monotonic() - began < LONG / 2
    supervisor.stop_process("ends")  # until now it was started again and again
    supervisor.start_processes(processes[1:])
    with pytest.raises(CannotStartError, match="the port is taken"):
        supervisor.wait_until_ready(processes[1:], required=["ends"], limit=LONG)
