"""Starts Spark applications as processes, finds them again, and stops them."""

import contextlib
import importlib.util
import logging
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from django.conf import settings

from backend.apps.jobs.package import FOLDER, package_ensure
from backend.domain.stages import Form, Stage, stage_named, task_slots
from backend.kafka.client.topics import partitions_of
from backend.settings import platform_settings

log = logging.getLogger(__name__)

_LOG_KEPT_BYTES = 20 * 1024 * 1024
_LANES_DRAIN_SECONDS = 45.0
_KILL_SECONDS = 5.0
_KAFKA_SECONDS = 5.0
_LOCAL = "local"
_TASK_FAILURES = 4
"""In local mode Spark takes this from the master's address only, and gives up after the first failure without it."""

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


def submit(*, job: str, token: int, stages: list[str], resources: dict[str, Any]) -> psutil.Process:
    """Starts ``spark-submit``; it outlives this process. No secret is on its command line. ``resources`` are those of
    SparkJob."""
    master = _master(resources["master"] or settings.CONSOLE.spark_master, stages, resources["slots"])
    command = [
        *_launcher(job, stages, master, resources, _emptied(scratch_folder(job))),
        *_identity(job, token),
        *("--stages", ",".join(stages), "--slots", str(resources["slots"])),
        *("--batch-seconds", str(settings.CONSOLE.adapting_batch_seconds)),
    ]
    path = log_file(job)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > _LOG_KEPT_BYTES:
        path.replace(path.with_suffix(".log.1"))
    with path.open("ab") as log:
        child = subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True, env=_process_env(master)
        )
    _children[child.pid] = child
    return psutil.Process(child.pid)


def scratch_folder(job: str) -> Path:
    """Where the application's temporary files lie: those of one that was killed, half a gigabyte at times, are removed
    when the next one starts."""
    return Path(settings.CONSOLE.var) / "spark/scratch" / job


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _master(configured: str, stages: list[str], lane_slots: int) -> str:
    """Spark's master. Local mode without a number of threads gets as many as all the stages together can use: a thread
    that nothing runs on costs nothing, and the number cannot change while Spark runs."""
    if configured != _LOCAL:
        return configured
    wanted = [stage_named(name) for name in stages]
    threads = sum(task_slots(stage, partitions=_partitions(stage), lane_slots=lane_slots) for stage in wanted)
    return f"{_LOCAL}[{threads},{_TASK_FAILURES}]"


def _partitions(stage: Stage) -> int:
    """The partitions of the topic that a query reads, or, while Kafka does not answer, as many as a new one has."""
    if stage.form is not Form.QUERY:
        return 0
    assert stage.topic is not None
    try:
        return partitions_of(
            AdminClient({**platform_settings().kafka.client(), "log_level": 0}), stage.topic, _KAFKA_SECONDS
        )
    except KafkaException as error:
        log.warning("The partitions of %s are unknown: %s", stage.topic, error.args[0].str())
        return int(settings.CONSOLE.topic_partitions)


def _launcher(job: str, stages: list[str], master: str, resources: dict[str, Any], scratch: Path) -> list[str]:
    return [
        str(_spark_home() / "bin/spark-submit"),
        *("--master", master, "--name", f"headrace-{job}", "--driver-memory", f"{resources['driver_memory']}m"),
        *_options(_jars(settings.CONSOLE.spark_jars), master, stages, resources, scratch),
        str(settings.BASE_DIR / "spark_jobs/main.py"),
    ]


def _spark_home() -> Path:
    """The folder of Spark, which comes with a package that takes a second to import."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _identity(job: str, token: int) -> list[str]:
    """The arguments that name one start of one installation's job."""
    checkpoints = settings.CONSOLE.spark_checkpoints or str(Path(settings.CONSOLE.var) / "spark/checkpoints")
    return ["--job", job, "--token", str(token), "--checkpoints", checkpoints]


def find_unrecorded(job: str, token: int) -> psutil.Process | None:
    """The application that was started on this host with this token, although its start was never recorded."""
    identity = "\0".join(_identity(job, token))
    started = [
        process
        for process in psutil.process_iter(["cmdline", "create_time", "status"])
        if process.info["status"] != psutil.STATUS_ZOMBIE and identity in "\0".join(process.info["cmdline"] or ())
    ]
    # The launcher becomes the JVM, whose children have the same arguments.
    return min(started, key=lambda process: process.info["create_time"], default=None)


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
    child = _children.get(process.pid)
    if child is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):  # the kernel may hold it for a while
            child.wait(_KILL_SECONDS)


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


def _options(jars: str, master: str, stages: list[str], resources: dict[str, Any], scratch: Path) -> list[str]:
    conf = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": (
            f"-XX:+UseSerialGC -XX:ReservedCodeCacheSize=128m '-Djava.io.tmpdir={scratch}'"
        ),
        "spark.task.maxFailures": str(_TASK_FAILURES),
        "spark.python.daemon.module": "spark_jobs.worker_daemon",
        "spark.python.worker.reuse": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.eventLog.enabled": "false",
        "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|executorEnv",
    }
    archive = Path(settings.CONSOLE.spark_class_archive)
    if archive.is_file():
        conf["spark.driver.defaultJavaOptions"] = f"'-XX:SharedArchiveFile={archive}'"
    if _is_local(master):
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        conf |= {"spark.local.dir": str(scratch)}
        # What queries of SQL remember is stored by a class that needs Hadoop's own local file system.
        remembers = any(stage_named(name).form is Form.SQL for name in stages)
        if not settings.CONSOLE.spark_checkpoints and not remembers:
            conf |= _LOCAL_CHECKPOINTS
    else:
        conf |= _code_of_executors()
    conf |= settings.CONSOLE.spark_conf | _of_executors(resources)
    options = [text for name, value in conf.items() for text in ("--conf", f"{name}={value}")]
    return options + (["--jars", jars] if jars else [])


def _code_of_executors() -> dict[str, str]:
    if not settings.CONSOLE.spark_python:
        return {"spark.executorEnv.PYTHONPATH": str(settings.BASE_DIR)}
    archive = package_ensure(_packages())
    return {"spark.archives": f"{archive}#{FOLDER}", "spark.executorEnv.PYTHONPATH": FOLDER}


def prepare() -> None:
    """Makes what starts need, which may take a minute."""
    if settings.CONSOLE.spark_python:
        package_ensure(_packages())


def _packages() -> Path:
    return Path(settings.CONSOLE.var) / "spark/packages"


def _of_executors(resources: dict[str, Any]) -> dict[str, str]:
    wanted = {
        "spark.executor.memory": resources["executor_memory"] and f"{resources['executor_memory']}m",
        "spark.executor.cores": resources["executor_cores"],
        "spark.cores.max": resources["most_cores"],
    }
    return {name: str(value) for name, value in wanted.items() if value is not None}


def _is_local(master: str) -> bool:
    return master.startswith(_LOCAL)


def _jars(configured: str) -> str:
    folder = Path(configured or settings.CONSOLE.var / "jars/spark")
    return ",".join(map(str, sorted(folder.glob("*.jar")))) if folder.is_dir() else configured


def _process_env(master: str) -> dict[str, str]:
    console = settings.CONSOLE
    return {
        **os.environ,
        "PYTHONPATH": str(settings.BASE_DIR),
        "PYSPARK_PYTHON": console.spark_python or sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        **({"SPARK_LOCAL_IP": "127.0.0.1"} if _is_local(master) else {}),
        **({"JAVA_HOME": console.java_home} if console.java_home else {}),
    }
