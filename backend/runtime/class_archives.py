"""Archives of Java classes: with one, Kafka and Spark's driver start with half of the CPU (JEP 350, ADR 25).

An archive is made by a process that ends in the usual way. It fits one Java and one class path, which Java checks
itself: it starts as without an archive when that does not fit. ``python -m backend.runtime.class_archives`` makes what
is missing.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from socket import socket

from backend.runtime import servers
from backend.runtime.health import is_listening
from backend.runtime.java import java_home
from backend.runtime.layout import Layout, var_folder
from backend.settings import ROOT

KAFKA, SPARK = "kafka", "spark"

_MOST_SECONDS = 300.0
"""Since nothing depends on an archive, a process that takes longer is ended."""
_POLL_SECONDS = 0.1
_USUAL_ENDS = (0, 128 + signal.SIGTERM)
"""A Java that is asked to end exits with a status of its own."""


def archive(jars: Path, home: Path, program: str) -> Path:
    """Where the program's archive is, or would be, for the Java in ``home`` and the jars that there are now."""
    paths = [_own_archive(home), servers.package_folder("pyspark") / "jars", jars / program]
    seen = [(str(path.resolve()), path.stat().st_mtime_ns) for path in paths if path.exists()]
    return jars.resolve() / f"{program}-{sha256(repr(seen).encode()).hexdigest()[:16]}.jsa"


def options(path: Path) -> list[str]:
    """Java's options to start with an archive; none while there is no such file."""
    return [f"-XX:SharedArchiveFile={path}"] if path.exists() else []


def missing(layout: Layout, home: Path) -> list[str]:
    """The programs that have no archive. None is missing for a Java that cannot make any."""
    if not _own_archive(home).exists():
        return []
    return [program for program in (KAFKA, SPARK) if not archive(layout.jars, home, program).exists()]


def ensure_class_archives(layout: Layout, home: Path) -> None:
    """Makes what is missing, unless another process is at it. One that cannot be made is left out."""
    with _alone(layout) as is_alone:
        for program in missing(layout, home) if is_alone else []:
            path = archive(layout.jars, home, program)
            for former in path.parent.glob(f"{program}-*.jsa"):
                former.unlink()
            with _unfinished(layout) as folder:
                made = folder / path.name
                has_ended = _RUNS[program](layout, home, folder, [f"-XX:ArchiveClassesAtExit={made}"])
                # Java does not start with half of an archive. It removes one that it could not write.
                if has_ended and made.exists():
                    with made.open("rb") as file:
                        os.fsync(file.fileno())
                    made.rename(path)


def make_in_background(layout: Layout) -> None:
    """Makes what is missing for the next start, in a process of its own that outlives this one."""
    if missing(layout, java_home(layout)):
        subprocess.Popen(
            [sys.executable, "-m", "backend.runtime.class_archives"],
            env=os.environ | {"HEADRACE_VAR": str(layout.var)},
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def _own_archive(home: Path) -> Path:
    """That of Java's own classes, which others add to."""
    return home / "lib/server/classes.jsa"


@contextmanager
def _alone(layout: Layout) -> Iterator[bool]:
    with (layout.jars / "archives.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


@contextmanager
def _unfinished(layout: Layout) -> Iterator[Path]:
    """An empty folder, also after a process that was killed at this."""
    folder = layout.jars.resolve() / "archives.unfinished"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def _run_kafka(layout: Layout, home: Path, folder: Path, java_options: list[str]) -> bool:
    port, controller_port = _free_ports(2)
    servers.kafka_prepare(folder, port, controller_port, home, layout.jars)
    command = servers.kafka_command(folder, home, layout.jars, java_options)
    return _run(command, {}, until=lambda: is_listening(f"127.0.0.1:{port}"))


def _run_spark(layout: Layout, home: Path, folder: Path, java_options: list[str]) -> bool:
    conf = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.defaultJavaOptions": " ".join(["-XX:+UseSerialGC", *java_options]),
    }
    command = [
        str(servers.package_folder("pyspark") / "bin/spark-submit"),
        *("--master", "local[1]", "--jars", ",".join(map(str, sorted((layout.jars / SPARK).glob("*.jar"))))),
        *(text for name, value in conf.items() for text in ("--conf", f"{name}={value}")),
        str(ROOT / "spark_jobs/start_up.py"),
    ]
    return _run(command, {"JAVA_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"})


_RUNS: dict[str, Callable[[Layout, Path, Path, list[str]], bool]] = {KAFKA: _run_kafka, SPARK: _run_spark}


def _run(command: list[str], environment: dict[str, str], until: Callable[[], bool] = lambda: False) -> bool:
    """Runs the command to its end, or until the condition holds. Whatever waits for the processor goes first. Returns
    whether it ended in the usual way."""
    deadline = time.monotonic() + _MOST_SECONDS
    process = subprocess.Popen(
        ["nice", "-n", "10", *command],
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        while process.poll() is None and not until() and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        process.terminate()
        return process.wait(_MOST_SECONDS) in _USUAL_ENDS
    except subprocess.TimeoutExpired:
        return False
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _free_ports(count: int) -> list[int]:
    probes = [socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


if __name__ == "__main__":
    installed = Layout(var_folder())
    ensure_class_archives(installed, java_home(installed))
