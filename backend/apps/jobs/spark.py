"""Starts Spark applications as processes, finds them again, and stops them."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pyspark
from django.conf import settings

_LOG_KEPT_BYTES = 20 * 1024 * 1024
_LANES_DRAIN_SECONDS = 45.0

_LOCAL_CHECKPOINTS = {
    # With plain files the end of an adapting batch takes 15 ms instead of 95 ms, during which new
    # messages wait.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}

_children: dict[int, subprocess.Popen[bytes]] = {}
"""Applications started by this process, which must wait for them to get their exit codes."""


def log_file(job: str) -> Path:
    return Path(settings.CONSOLE.var) / "log" / f"spark-{job}.log"


def submit(*, job: str, stages: list[str], slots: int) -> psutil.Process:
    """Starts ``spark-submit``; it outlives this process. No secret is on its command line."""
    console = settings.CONSOLE
    command = [
        str(Path(pyspark.__file__).parent / "bin/spark-submit"),
        *("--master", console.spark_master, "--name", f"headrace-{job}", "--driver-memory", "512m"),
        *_options(console.spark_jars or _downloaded_jars(), console.spark_master),
        str(settings.BASE_DIR / "spark_jobs/main.py"),
        *("--job", job, "--stages", ",".join(stages), "--slots", str(slots)),
        *("--checkpoints", str(Path(console.var) / "spark/checkpoints")),
        *("--batch-seconds", str(console.adapting_batch_seconds)),
    ]
    path = log_file(job)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > _LOG_KEPT_BYTES:
        path.replace(path.with_suffix(".log.1"))
    with path.open("ab") as log:
        child = subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True, env=_process_env()
        )
    _children[child.pid] = child
    return psutil.Process(child.pid)


def find(pid: int | None, started: float | None) -> psutil.Process | None:
    """The application's process while it lives, whoever started it."""
    if pid is None:
        return None
    if pid in _children:
        _children[pid].poll()
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE or abs(process.create_time() - (started or 0)) > 1:
            return None
    except psutil.NoSuchProcess:
        return None
    return process


def exit_code(pid: int) -> int | None:
    """Known only to the process that started the application."""
    child = _children.pop(pid, None)
    return child.poll() if child is not None else None


def drain_limit_seconds() -> float:
    """An application that has not drained by then is stuck: lanes finish within seconds, the adapting query after
    its current batch."""
    return _LANES_DRAIN_SECONDS + float(settings.CONSOLE.adapting_batch_seconds)


def drain(process: psutil.Process) -> None:
    """Asks the driver to drain. The JVM must not get the signal, since it would exit at once."""
    driver = next((child for child in process.children() if "python" in child.name()), None)
    (driver or process).send_signal(signal.SIGTERM)


def kill(process: psutil.Process) -> None:
    """Kills the application and all its child processes."""
    for victim in [*process.children(recursive=True), process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            victim.kill()


def log_tail(job: str, lines: int) -> list[str]:
    """The last lines of the application's log."""
    path = log_file(job)
    if not path.exists():
        return []
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 400 * lines))
        return file.read().decode(errors="replace").splitlines()[-lines:]


def last_error(job: str) -> str:
    """The last line of the log that reports an error."""
    errors = [line for line in log_tail(job, 400) if " ERROR " in line or line.startswith(("Error", "Exception"))]
    return errors[-1][:1000] if errors else "It ended without an error message; see its log."


def _options(jars: str, master: str) -> list[str]:
    conf = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=4 -XX:ReservedCodeCacheSize=128m",
        "spark.task.maxFailures": "4",
        "spark.python.worker.reuse": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.eventLog.enabled": "false",
    }
    if _is_local(master):
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", **_LOCAL_CHECKPOINTS}
    else:
        # Executors need the project and Python at the same paths as the driver.
        conf |= {"spark.executorEnv.PYTHONPATH": str(settings.BASE_DIR)}
    conf |= settings.CONSOLE.spark_conf
    options = [text for name, value in conf.items() for text in ("--conf", f"{name}={value}")]
    return options + (["--jars", jars] if jars else [])


def _is_local(master: str) -> bool:
    return master.startswith("local")


def _downloaded_jars() -> str:
    return ",".join(str(jar) for jar in sorted((Path(settings.CONSOLE.var) / "jars/spark").glob("*.jar")))


def _process_env() -> dict[str, str]:
    console = settings.CONSOLE
    return {
        **os.environ,
        "PYTHONPATH": str(settings.BASE_DIR),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        **({"SPARK_LOCAL_IP": "127.0.0.1"} if _is_local(console.spark_master) else {}),
        **({"JAVA_HOME": console.java_home} if console.java_home else {}),
    }
