"""Starts and stops the embedded installation."""

import contextlib
import json
import shutil
import time
import urllib.error
import urllib.request
import xmlrpc.client
from collections.abc import Callable
from typing import Any

import psutil
from redis.exceptions import RedisError

from backend.apps.jobs import spark
from backend.network.redis_client import redis_client
from backend.runtime import class_archives, stack
from backend.runtime.errors import CannotStartError
from backend.runtime.layout import Layout
from backend.runtime.starting import Start, wait_for_starts
from backend.runtime.supervisor import Supervisor
from backend.settings import EmbeddedSettings
from backend.telemetry import keys

_LOOK_SECONDS = 1.0
_DATABASE, _CONSOLE = "postgresql", "console"


def up(layout: Layout) -> list[str]:
    """Starts everything that is wanted and waits until it works. Returns a sentence about everything that does not
    run, or not yet: the console is there to repair it.

    Raises CannotStartError when there can be no console.
    """
    supervisor = Supervisor(layout)
    limit = EmbeddedSettings().start_limit_seconds
    if supervisor.is_running():
        raise CannotStartError("Headrace is already running; see `manage.py status`.")
    _end_leftovers(layout)
    stack.check_ports(layout)
    prepared = stack.prepare(layout)
    began = time.time()
    supervisor.start([*prepared.servers, *prepared.services], prepared.environment)
    try:
        supervisor.start_processes(prepared.servers)
        database = [server for server in prepared.servers if server.name == _DATABASE]
        others = [server for server in prepared.servers if server.name != _DATABASE]
        supervisor.wait_until_ready(database, required=[_DATABASE], limit=limit)
        # The database is migrated while Kafka, the slowest of the servers, starts.
        with stack.preparation(prepared.environment) as preparing:
            problems = supervisor.wait_until_ready(others, limit=limit)
            wanted = preparing.finish()
        supervisor.start_processes(prepared.services)
        problems |= supervisor.wait_until_ready(
            prepared.services, required=[_CONSOLE], failed=bool(problems), limit=limit
        )
        running = [job for job, desired in wanted["jobs"].items() if desired == "running"]
        worker_ended = supervisor.ended_since_now("worker")
        starts = [_start_of_spark(layout, prepared.environment, job, began, worker_ended) for job in running]
        # Without what it needs it would be waited for in vain.
        late = {} if problems else wait_for_starts(starts, limit=limit)
    except BaseException:
        down(layout)
        raise
    class_archives.make_in_background(layout)
    stopped = [
        f"The Spark application {job} is stopped; start it on the page Jobs of the console."
        for job, desired in wanted["jobs"].items()
        if desired == "stopped"
    ]
    started_again = [
        f"Messages wait in Kafka, and it is started again and again. {problem}" for problem in late.values()
    ]
    return [*problems.values(), *wanted["problems"], *stopped, *started_again]


def down(layout: Layout) -> None:
    """Stops everything in reverse order; messages in flight are finished or stay in Kafka. Another command or a signal
    may do so at the same time."""
    supervisor = Supervisor(layout)
    try:
        if supervisor.is_running():
            _stop_in_order(layout, supervisor)
    except (OSError, xmlrpc.client.Error):
        if supervisor.is_running():
            raise
    supervisor.wait_until_ended()
    _end_leftovers(layout)


def _stop_in_order(layout: Layout, supervisor: Supervisor) -> None:
    # The worker goes first, since it would restart the Spark application.
    supervisor.stop_process("worker")
    _drain_spark(layout)
    for process in reversed(supervisor.processes()):
        supervisor.stop_process(process["name"])
    supervisor.shutdown()


def wait_until_down(layout: Layout) -> None:
    """Blocks until the installation has been stopped."""
    supervisor = Supervisor(layout)
    while supervisor.is_running():
        time.sleep(_LOOK_SECONDS)


def reset(layout: Layout) -> None:
    """Deletes all data; downloads are kept."""
    down(layout)
    for path in layout.var.iterdir():
        if path.name not in ("jars", "java"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def status(layout: Layout) -> dict[str, Any]:
    """The processes, components and endpoints, as ``manage.py status --json`` prints them."""
    supervisor = Supervisor(layout)
    if not supervisor.is_running():
        return {"running": False, "processes": [], "endpoints": {}}
    environment = json.loads(layout.environment_file.read_text())
    heartbeat = _heartbeat(environment)
    application = {
        "name": keys.DEFAULT_JOB,
        "state": str(heartbeat["state"]).upper() if heartbeat else "UNKNOWN",
        "pid": heartbeat["pid"] if heartbeat else 0,
        "since": int(heartbeat["started_at"]) if heartbeat else 0,
    }
    console, ingest = environment["HEADRACE_PUBLIC_URL"], environment["HEADRACE_INGEST_URL"]
    return {
        "running": True,
        "processes": [*supervisor.processes(), application],
        "components": _components(console),
        "endpoints": {
            "console": console,
            "api": f"{console}/api/v1/",
            "admin": f"{console}/admin/",
            "ingest": ingest,
            "manager_grpc": environment["HEADRACE_MANAGER_ADDRESS"],
            "kafka": environment["HEADRACE_KAFKA_BOOTSTRAP_SERVERS"],
            "read_gateway": environment["HEADRACE_GATEWAY_LISTEN"],
            "schema_registry": f"http://{environment['HEADRACE_GATEWAY_HTTP_LISTEN']}",
            "redis": environment["HEADRACE_REDIS_URL"],
            "postgresql": f"127.0.0.1:{layout.port('postgresql')}",
        },
    }


def _components(console: str) -> dict[str, str]:
    try:
        with urllib.request.urlopen(f"{console}/health/ready", timeout=15) as answer:
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:
        return dict(json.load(error)) if error.code == 503 else {"console": f"answered {error.code}"}
    except OSError:
        return {"console": "The console is unavailable."}


def _heartbeat(environment: dict[str, str], job: str = keys.DEFAULT_JOB) -> dict[str, Any] | None:
    try:
        payload: Any = redis_client(environment["HEADRACE_REDIS_URL"]).get(keys.job_heartbeat(job))
    except RedisError:
        return None
    return json.loads(payload) if payload else None


def _start_of_spark(
    layout: Layout, environment: dict[str, str], job: str, since: float, worker_ended: Callable[[], bool]
) -> Start:
    """The start of an application by the worker, after ``since``."""
    started: list[psutil.Process] = []

    def runs() -> bool:
        heartbeat = _heartbeat(environment, job)
        return heartbeat is not None and heartbeat["at"] > since and heartbeat["state"] == "running"

    def ended() -> bool:
        if not started:
            time.sleep(_LOOK_SECONDS)  # Looking through all processes takes a while.
            started.extend(process for process in spark_applications(layout) if job in _command(process))
        return worker_ended() or (bool(started) and not any(process.is_running() for process in started))

    return Start(f"The Spark application {job}", runs, ended, layout.log / f"spark-{job}.log")


def _drain_spark(layout: Layout) -> None:
    applications = spark_applications(layout)
    for process in applications:
        spark.drain(process)
    _, alive = psutil.wait_procs(applications, spark.drain_limit_seconds())
    for process in alive:
        spark.kill(process)


def _end_leftovers(layout: Layout) -> None:
    """Ends processes that a killed supervisor left behind."""
    leftovers = own_processes(layout)
    for process in leftovers:
        _quietly(process.terminate)
    _, alive = psutil.wait_procs(leftovers, 10)
    for process in alive:
        _quietly(process.kill)
    psutil.wait_procs(alive, 5)


def spark_applications(layout: Layout) -> list[psutil.Process]:
    """The Java processes of the Spark drivers."""
    return [process for process in own_processes(layout) if "org.apache.spark.deploy.SparkSubmit" in _command(process)]


def own_processes(layout: Layout) -> list[psutil.Process]:
    """Every process that was started with the installation's environment, except this one and its ancestors. Processes
    of a user who has merely exported HEADRACE_VAR are not among them."""
    this = psutil.Process()
    excluded = {this.pid, *(parent.pid for parent in this.parents())}
    processes = []
    for process in psutil.process_iter():
        try:
            environment = process.environ()
        except (psutil.Error, OSError):
            continue
        is_own = environment.get("HEADRACE_VAR") == str(layout.var) and "HEADRACE_EMBEDDED" in environment
        if is_own and process.pid not in excluded and process.status() != psutil.STATUS_ZOMBIE:
            processes.append(process)
    return processes


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _quietly(action: Any) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        action()
