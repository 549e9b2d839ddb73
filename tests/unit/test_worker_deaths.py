"""Which records end their workers: counted by Spark's own daemon, of processes that really die."""

import contextlib
import json
import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from spark_jobs.streaming import worker_deaths
from spark_jobs.streaming.worker_deaths import Cell, Deaths, RecordId
from tests.unit.dying_workers import TOPIC
from tests.waiting import LIMIT_SECONDS, wait_until

DEADLY = [3, 4711]
OTHER = [0, 5]


class Worker:
    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), LIMIT_SECONDS)
        self._stream = self._socket.makefile("rwb")
        (self.pid,) = struct.unpack(">i", self._stream.read(4))

    def told(self, **order: Any) -> list[list[int]]:
        """What it knows: partition, offset, count and last status of each deadly record."""
        self._stream.write(json.dumps(order).encode() + b"\n")
        self._stream.flush()
        return list(json.loads(self._stream.readline()))

    def has_ended(self) -> bool:
        """Whether or not the daemon has noted it."""
        try:
            return psutil.Process(self.pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    def close(self) -> None:
        self._stream.close()
        self._socket.close()
        wait_until(self.has_ended)


class Daemon:
    """Spark's, as Spark talks to it."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.unit.dying_workers"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        (self._port,) = struct.unpack(">i", self.process.stdout.read(4))

    def worker(self) -> Worker:
        return Worker(self._port)

    def known(self) -> list[list[int]]:
        """To a worker that it forks now."""
        worker = self.worker()
        known = worker.told()
        worker.close()
        return known

    def dies(self, **order: Any) -> None:
        worker = self.worker()
        worker.told(**order)
        worker.close()

    def kill(self, worker: Worker) -> None:
        """As Spark's executor does with a task that is killed."""
        assert self.process.stdin is not None
        self.process.stdin.write(struct.pack(">i", worker.pid))
        self.process.stdin.flush()
        wait_until(worker.has_ended)

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(LIMIT_SECONDS)


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    started = Daemon()
    yield started
    started.close()


@pytest.mark.parametrize(
    ("then", "status"),
    [("signal SIGSEGV", -11), ("signal SIGABRT", -6), ("signal SIGKILL", -9), ("exit 3", 3), ("exit 0", 0)],
)
def test_neighbours_4_a_record_is_deadly_once_two_workers_have_ended_at_it(
    daemon: Daemon, then: str, status: int
) -> None:
    daemon.dies(begin=[DEADLY], then=then)
    assert daemon.known() == []
    daemon.dies(begin=[OTHER, DEADLY], end=[OTHER], then=then)
    assert daemon.known() == [[*DEADLY, 2, status]]
    daemon.dies(begin=[DEADLY], then="signal SIGBUS")
    assert daemon.known() == [[*DEADLY, 3, -7]]
    assert daemon.process.poll() is None
    assert len(psutil.Process(daemon.process.pid).children()) <= 1


def test_neighbours_4_a_worker_that_hangs_and_is_killed_counts(daemon: Daemon) -> None:
    for _ in range(2):
        worker = daemon.worker()
        worker.told(begin=[DEADLY], then="wait")
        daemon.kill(worker)
        worker.close()
    assert daemon.known() == [[*DEADLY, 2, -9]]


def test_neighbours_4_a_worker_that_still_hangs_when_its_successor_is_forked_counts_already(daemon: Daemon) -> None:
    daemon.dies(begin=[DEADLY], then="signal SIGKILL")
    hung = daemon.worker()
    hung.told(begin=[DEADLY], then="wait")
    assert daemon.known() == [[*DEADLY, 2, -9]]
    daemon.kill(hung)
    hung.close()
    assert daemon.known() == [[*DEADLY, 2, -9]]


def test_neighbours_4_what_ends_between_two_records_or_as_usual_counts_for_nothing(daemon: Daemon) -> None:
    for _ in range(2):
        daemon.dies(begin=[DEADLY], end=[DEADLY], then="signal SIGKILL")
        daemon.dies(then="signal SIGKILL")
        daemon.dies(begin=[DEADLY], end=[DEADLY], then="exit 1")
        daemon.dies(begin=[DEADLY], end=[DEADLY])
        waiting = daemon.worker()
        waiting.told(begin=[DEADLY], end=[DEADLY], then="wait")
        daemon.kill(waiting)
        waiting.close()
    assert daemon.known() == []


def test_neighbours_4_each_worker_dies_of_its_own_record(daemon: Daemon) -> None:
    """Several live at once, and die before the daemon looks."""
    workers = [daemon.worker() for _ in range(10)]
    for number, worker in enumerate(workers):
        worker.told(begin=[[0, number % 5]], then="wait")
    for worker in workers:
        os.kill(worker.pid, signal.SIGKILL)
    for worker in workers:
        worker.close()
    assert sorted(daemon.known()) == [[0, number, 2, -9] for number in range(5)]


def test_neighbours_4_a_process_of_a_worker_is_not_the_worker(daemon: Daemon) -> None:
    for _ in range(2):
        daemon.dies(begin=[DEADLY], end=[DEADLY], then="fork")
    assert daemon.known() == []
    for _ in range(2):
        daemon.dies(begin=[DEADLY], then="fork")  # it returns with its mark, as no lane does
    assert daemon.known() == [[*DEADLY, 2, 0]]


def test_neighbours_4_a_process_without_the_daemon_has_a_cell_of_its_own() -> None:
    cell = worker_deaths.own_cell()
    assert cell.pid == os.getpid()
    assert worker_deaths.own_cell() is cell
    assert worker_deaths.deadly_records(TOPIC) == {}


def test_neighbours_4_no_record_is_read_from_a_cell_that_was_half_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is killed after each of the bytes that it writes for two records in turn."""
    monkeypatch.setattr(worker_deaths, "_PLACE", _ByteByByte("=qq"))
    monkeypatch.setattr(mmap, "mmap", _KilledMemory)
    places = [(0x0102030405060708, -2), (0x7172737475767778, 0x0101010101010101)]
    seen = set()
    for most in range(2 * (16 + 2) + 1):
        cell = Cell()
        cell.read_from(TOPIC)
        memory: Any = cell._memory
        memory.left = most
        with contextlib.suppress(_KilledHere):
            for place in places:
                cell.begin(*place)
                cell.end()
        seen.add(cell.executing())
    assert seen == {None, *(RecordId(TOPIC, *place) for place in places)}


class _KilledHere(Exception):
    pass


class _KilledMemory(mmap.mmap):
    left = 0

    def __setitem__(self, index: Any, value: Any) -> None:
        if not self.left:
            raise _KilledHere
        self.left -= 1
        super().__setitem__(index, value)


class _ByteByByte(struct.Struct):
    def pack_into(self, buffer: Any, offset: int, *values: Any) -> None:
        for index, byte in enumerate(self.pack(*values)):
            buffer[offset + index] = byte


def test_neighbours_4_counts_are_bounded_and_the_newest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_deaths, "_KEPT", 10)
    workers = worker_deaths._Workers()
    for offset in [*range(20), 19, 15]:
        cell = Cell()
        cell.read_from(TOPIC)
        cell.claim()
        cell.begin(0, offset)
        workers._cells.append(cell)
        workers._note(os.getpid(), -6)
    assert len(workers._deaths) == 10
    assert workers.deadly(TOPIC) == {(0, 19): Deaths(2, -6), (0, 15): Deaths(2, -6)}
    assert workers.deadly("another") == {}


@pytest.mark.parametrize(
    ("status", "cause"),
    [(-11, "killed by SIGSEGV, exit status -11"), (-50, "killed by signal 50, exit status -50"), (3, "exit status 3")],
)
def test_neighbours_4_a_cause_is_named(status: int, cause: str) -> None:
    assert Deaths(2, status).cause == cause
