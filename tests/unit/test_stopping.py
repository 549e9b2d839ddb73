"""An installation that is stopped by several at the same time."""

import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from backend.runtime.installation import down
from backend.runtime.layout import Layout
from backend.runtime.stack import Process
from backend.runtime.supervisor import Supervisor
from tests.waiting import wait_until

SLOW = """
import signal, sys, time
from pathlib import Path

signals = Path(sys.argv[1])

def end(*_):
    with signals.open("a") as file:
        file.write("told to end\\n")
    time.sleep(2)
    sys.exit()

signal.signal(signal.SIGTERM, end)
signals.touch()
while True:
    time.sleep(1)
"""
"""A process that takes some time to end, and writes down how often it was told to."""


@pytest.fixture
def layout(tmp_path: Path) -> Iterator[Layout]:
    made = Layout(tmp_path)
    made.create()
    yield made
    down(made)


@pytest.fixture
def signals(layout: Layout) -> Path:
    """What a slow process, which runs, has been told."""
    file, program = layout.var / "signals", layout.var / "slow.py"
    program.write_text(SLOW)
    process = Process("slow", [sys.executable, str(program), str(file)], file.exists)
    supervisor = Supervisor(layout)
    supervisor.start([process], {"HEADRACE_VAR": str(layout.var), "HEADRACE_EMBEDDED": "true"})
    supervisor.start_processes([process])
    wait_until(file.exists)
    return file


def test_two_commands_may_stop_it_at_the_same_time(layout: Layout, signals: Path) -> None:
    with ThreadPoolExecutor() as pool:
        for stopped in [pool.submit(down, layout) for _ in range(2)]:
            stopped.result()
    assert not Supervisor(layout).is_running()
    assert signals.read_text() == "told to end\n"


def test_processes_that_a_signal_to_the_supervisor_ends_are_waited_for(layout: Layout, signals: Path) -> None:
    os.kill(int((layout.run / "supervisord.pid").read_text()), signal.SIGTERM)
    down(layout)
    assert not Supervisor(layout).is_running()
    assert signals.read_text() == "told to end\n"
