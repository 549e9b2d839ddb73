"""What is done to a running installation, and the seeded order in which it is done."""

import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import psutil
from redis import Redis

from tests.installation import Installation
from tests.waiting import LIMIT_SECONDS

Act = Callable[[Installation], None]


@dataclass(frozen=True)
class Fault:
    """``act`` begins it; ``undo``, if any, ends it, ``hold`` requests of the senders later."""

    name: str
    act: Act
    undo: Act | None = None
    hold: int = 0


def process_named(installation: Installation, name: str) -> psutil.Process:
    [pid] = [process["pid"] for process in installation.supervisor.processes() if process["name"] == name]
    return psutil.Process(pid)


def kill(name: str) -> Fault:
    def act(installation: Installation) -> None:
        with suppress(psutil.NoSuchProcess):
            process_named(installation, name).kill()

    return Fault(f"SIGKILL {name}", act)


def stop(name: str, hold: int) -> Fault:
    """The process exists and answers nothing."""
    stopped: list[psutil.Process] = []

    def act(installation: Installation) -> None:
        with suppress(psutil.NoSuchProcess):
            process = process_named(installation, name)
            stopped[:] = [process, *process.children(recursive=True)]
        _signal(stopped, signal.SIGSTOP)

    def undo(_: Installation) -> None:
        # Those that were stopped, since the process may have been killed meanwhile.
        _signal(stopped, signal.SIGCONT)

    return Fault(f"SIGSTOP {name}", act, undo, hold)


def _signal(processes: list[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def kill_lanes(installation: Installation) -> None:
    for worker in installation.lane_workers():
        with suppress(psutil.NoSuchProcess):
            worker.kill()


def stop_lane(installation: Installation) -> None:
    """Stops one lane task for good: nothing continues it, it has to be replaced."""
    workers = installation.lane_workers()
    if workers:
        with suppress(psutil.NoSuchProcess):
            workers[-1].suspend()


def kill_spark(installation: Installation) -> None:
    driver = installation.spark()
    for process in [driver, *driver.children(recursive=True)] if driver else []:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def flush(installation: Installation) -> None:
    with Redis.from_url(installation.endpoint("redis"), socket_timeout=5) as client:
        client.flushall()


class FullDisk:
    """No file of Kafka's may grow any more, also after the broker is started again: writes fail as on a full disk."""

    _EVERY_SECONDS = 0.1

    def __init__(self) -> None:
        self._is_full = threading.Event()

    def fill(self, installation: Installation) -> None:
        self._is_full.set()
        self._filling = threading.Thread(target=self._fill, args=[installation])
        self._filling.start()

    def make_room(self, installation: Installation) -> None:
        self._is_full.clear()
        self._filling.join()
        self._limit(installation, psutil.RLIM_INFINITY)

    def _fill(self, installation: Installation) -> None:
        while self._is_full.is_set():
            self._limit(installation, 0)
            time.sleep(self._EVERY_SECONDS)

    @staticmethod
    def _limit(installation: Installation, size: int) -> None:
        with suppress(psutil.NoSuchProcess):
            process_named(installation, "kafka").rlimit(psutil.RLIMIT_FSIZE, (size, psutil.RLIM_INFINITY))


def restart(name: str) -> Fault:
    def act(installation: Installation) -> None:
        installation.supervisor.stop_process(name)
        installation.supervisor.start_process(name)

    return Fault(f"restart {name}", act)


def every_fault(hold: int) -> list[Fault]:
    """``hold`` is how long a stopped process stays stopped, in requests of the senders."""
    disk = FullDisk()
    return [
        Fault("SIGKILL lane workers", kill_lanes),
        Fault("SIGSTOP lane worker", stop_lane),
        Fault("SIGKILL Spark", kill_spark),
        kill("manager"),
        kill("worker"),
        kill("workers"),
        kill("ingest"),
        kill("console"),
        kill("kafka"),
        kill("redis"),
        kill("postgresql"),
        stop("kafka", hold),
        stop("redis", hold),
        stop("postgresql", hold),
        stop("manager", hold),
        stop("worker", hold),
        stop("workers", hold),
        restart("redis"),
        restart("postgresql"),
        Fault("FLUSHALL", flush),
        Fault("full disk of Kafka", disk.fill, disk.make_room, hold),
    ]


SHORT = [
    "SIGKILL lane workers", "FLUSHALL", "SIGKILL workers", "SIGSTOP redis", "full disk of Kafka", "SIGKILL postgresql",
    "SIGKILL Spark",
]  # fmt: skip
"""Those of the short form: one of each kind."""


def schedule(seed: int, faults: list[Fault], count: int) -> list[Fault]:
    """``count`` faults, each at least once if there is room for all, in an order that depends on the seed alone."""
    numbers = random.Random(seed)
    chosen: list[Fault] = []
    while len(chosen) < count:
        chosen += numbers.sample(faults, len(faults))
    return chosen[:count]


def await_processes(installation: Installation, seconds: float = LIMIT_SECONDS) -> None:
    """Returns once every supervised process runs again."""
    deadline = time.monotonic() + seconds
    while any(process["state"] != "RUNNING" for process in installation.supervisor.processes()):
        assert time.monotonic() < deadline, installation.supervisor.processes()
        time.sleep(0.2)
