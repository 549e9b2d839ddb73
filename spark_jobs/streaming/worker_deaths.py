"""Which records end the Python workers that handle them.

Spark's daemon (worker_daemon.py) forks the workers and sees each of them end, also one that hangs and is killed. A
worker writes into its cell, a page of memory that it shares with the daemon, which record its event loop executes. If
it ends meanwhile, that record has ended it, whatever the exit status.

The daemon counts, and a worker knows what had been counted when it was forked. So on a cluster each executor counts for
itself, and a record may end two workers of each; a daemon that is started anew knows of no former deaths.
"""

import logging
import mmap
import os
import signal
import struct
from typing import NamedTuple

log = logging.getLogger(__name__)

_DEADLY = 2
"""Once may be chance: a worker that an operator or the system kills was executing something, too."""
_KEPT = 1000
_IN_USE = 0
_PID = struct.Struct("=q")
_PLACE = struct.Struct("=qq")
_TOPIC = struct.Struct("=256p")
_PID_AT, _PLACE_AT, _TOPIC_AT = 8, 16, 32


class RecordId(NamedTuple):
    """Where a record was read."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}@{self.offset}"


class Deaths(NamedTuple):
    """How many workers a record has ended, and the exit status of the last, negative for a signal."""

    workers: int
    status: int

    @property
    def cause(self) -> str:
        """Of the last one."""
        if self.status >= 0:
            return f"exit status {self.status}"
        try:
            name = signal.Signals(-self.status).name
        except ValueError:
            name = f"signal {-self.status}"
        return f"killed by {name}, exit status {self.status}"


class Cell:
    """What one worker executes, in memory that it shares with the daemon.

    A process may be killed between any two bytes that it writes. The record counts only while the flag is set, which is
    written last and cleared first.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)

    @property
    def pid(self) -> int:
        """The worker; 0 until it is known."""
        pid: int = _PID.unpack_from(self._memory, _PID_AT)[0]
        return pid

    def claim(self) -> None:
        """This process is the worker."""
        _PID.pack_into(self._memory, _PID_AT, os.getpid())

    def read_from(self, topic: str) -> None:
        """The topic of the records that follow."""
        _TOPIC.pack_into(self._memory, _TOPIC_AT, topic.encode())

    def begin(self, partition: int, offset: int) -> None:
        """The worker executes this record, and no other."""
        _PLACE.pack_into(self._memory, _PLACE_AT, partition, offset)
        self._memory[_IN_USE] = 1

    def end(self) -> None:
        self._memory[_IN_USE] = 0

    def executing(self) -> RecordId | None:
        """The record between ``begin`` and ``end``."""
        if not self._memory[_IN_USE]:
            return None
        topic: bytes = _TOPIC.unpack_from(self._memory, _TOPIC_AT)[0]
        return RecordId(topic.decode(), *_PLACE.unpack_from(self._memory, _PLACE_AT))


class _Workers:
    """The workers of this process, Spark's daemon, and the records that ended some of them."""

    def __init__(self) -> None:
        self._daemon = 0
        self._cells: list[Cell] = []
        self._deaths: dict[RecordId, Deaths] = {}

    def watch(self) -> None:
        self._daemon = os.getpid()
        os.register_at_fork(before=self._before_fork, after_in_child=self._in_child)

    def cell(self) -> Cell:
        """This process's own."""
        cell = self._cells[-1] if self._cells else None
        if cell is None or cell.pid != os.getpid():  # not forked by the daemon
            cell = Cell()
            cell.claim()
            self._cells.append(cell)
        return cell

    def deadly(self, topic: str) -> dict[tuple[int, int], Deaths]:
        counted = dict(self._deaths)
        # A worker that hangs is still being killed while its successor is forked.
        for record in (cell.executing() for cell in self._cells if cell.pid != os.getpid()):
            if record in counted:
                counted[record] = Deaths(counted[record].workers + 1, counted[record].status)
        return {
            (record.partition, record.offset): deaths
            for record, deaths in counted.items()
            if record.topic == topic and deaths.workers >= _DEADLY
        }

    def _before_fork(self) -> None:
        if os.getpid() != self._daemon:  # a worker that forks itself
            return
        # Spark's daemon ignores this signal, so that nobody would learn how its workers end.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._reap()
        self._cells.append(Cell())

    def _in_child(self) -> None:
        cell = self._cells[-1]
        if not cell.pid:
            cell.claim()

    def _reap(self) -> None:
        """Notes who has ended since the last fork. Until now nobody had to know."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:  # there are no more
                return
            if not pid:
                return
            self._note(pid, os.waitstatus_to_exitcode(status))

    def _note(self, pid: int, status: int) -> None:
        cell = next((cell for cell in self._cells if cell.pid == pid), None)
        if cell is None:  # it ended before it was one
            return
        self._cells.remove(cell)
        record = cell.executing()
        if record is None:
            return
        former = self._deaths.pop(record, None)
        deaths = self._deaths[record] = Deaths(former.workers + 1 if former else 1, status)
        if len(self._deaths) > _KEPT:
            del self._deaths[next(iter(self._deaths))]
        log.error("Worker %d ended (%s) at %s, as %d have by now.", pid, deaths.cause, record, deaths.workers)


_workers = _Workers()


def watch_workers() -> None:
    """Called once by the daemon, before it forks: from now on this process counts what its workers die of."""
    _workers.watch()


def own_cell() -> Cell:
    """The cell of this process. One that the daemon did not fork has one that nobody reads."""
    return _workers.cell()


def deadly_records(topic: str) -> dict[tuple[int, int], Deaths]:
    """The records of the topic that must not be handled again, since two workers died of them or more, by partition
    and offset; as far as this worker's daemon knew when it forked it."""
    return _workers.deadly(topic)
