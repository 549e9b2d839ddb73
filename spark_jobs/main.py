"""Runs stages in one Spark application: ``spark-submit spark_jobs/main.py --job NAME --stages all``.

SIGTERM drains: lanes finish what they hold, commit, and the application exits with 0. It exits
with 1 when a stage failed and with 2 when it cannot start as configured.
"""

import argparse
import functools
import importlib
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from pyspark import InheritableThread
from pyspark.sql import SparkSession
from redis.exceptions import RedisError

from backend.domain.stages import ADAPTING, STAGES, Form, Stage, stage_named
from backend.network.redis_client import redis_client
from backend.settings import Settings
from backend.telemetry import keys
from backend.telemetry.metrics_server import serve_metrics
from spark_jobs.jobs import adapting
from spark_jobs.streaming.input_lane import run_input_slot
from spark_jobs.streaming.lane import run_slot
from spark_jobs.streaming.stop_channel import StopChannel

log = logging.getLogger("spark_jobs")

_HEARTBEAT_SECONDS = 2.0
_HEARTBEAT_KEPT_SECONDS = 3600
_KAFKA_SECONDS = 10.0
_EXECUTORS_SECONDS = 60.0


class StartError(Exception):
    """The application cannot run as configured; the message says what to change."""


@dataclass(frozen=True)
class QueryOptions:
    """Where the adapting query writes its checkpoints, and how often."""

    checkpoint: str
    batch_seconds: int


@dataclass
class RunningStage:
    """A stage that has been started. ``failure`` returns its error once it has failed."""

    name: str
    slots: int
    alive: Callable[[], bool]
    failure: Callable[[], str | None]
    progress: Callable[[], dict[str, Any]]
    stop: Callable[[], None]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", required=True, help="name under which the application reports itself")
    parser.add_argument(
        "--stages", default="all", help=f"comma-separated, of {', '.join(stage.name for stage in STAGES)}; or all"
    )
    parser.add_argument("--slots", type=int, default=1, help="lane tasks per lane stage")
    parser.add_argument("--checkpoints", required=True, help="folder or URL for Spark's checkpoints")
    parser.add_argument("--batch-seconds", type=int, default=30, help="seconds between two checkpoints")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s driver %(message)s")
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    try:
        stages = STAGES if arguments.stages == "all" else tuple(map(stage_named, arguments.stages.split(",")))
    except KeyError as error:
        parser.error(f"unknown stage: {error}")
    try:
        query = QueryOptions(f"{arguments.checkpoints}/{ADAPTING.name}", arguments.batch_seconds)
        return run(arguments.job, stages, arguments.slots, query, stop)
    except StartError as error:
        log.error("%s", error)
        return 2


def run(job: str, stages: tuple[Stage, ...], lane_slots: int, query: QueryOptions, stop: threading.Event) -> int:
    """Runs until ``stop`` is set or a stage fails; the process's exit status."""
    environment = Settings()
    serve_metrics()
    spark = SparkSession.builder.appName(f"headrace-{job}").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    running: list[RunningStage] = []
    heartbeat = _Heartbeat(job, spark.sparkContext.applicationId, environment.redis_url, running)
    try:
        # Failing here would only delay the work by the back-off between two starts.
        while not _kafka_answers(environment) and not stop.is_set():
            heartbeat.send("waiting for Kafka")
            stop.wait(_HEARTBEAT_SECONDS)
        if stop.is_set():
            return 0
        _check_slots(spark, environment, stages, lane_slots)
        running += [_start(spark, environment, stage, lane_slots, query) for stage in stages]
        while not stop.is_set():
            failed = [stage for stage in running if not stage.alive()]
            heartbeat.send("failing" if failed else "running")
            if failed:
                for stage in failed:
                    log.error(
                        "Stage %s failed: %s", stage.name, stage.failure() or "it ended although nothing stopped it"
                    )
                break
            stop.wait(_HEARTBEAT_SECONDS)
        heartbeat.send("stopping")
        stopping = [threading.Thread(target=stage.stop) for stage in running]
        for thread in stopping:
            thread.start()
        for thread in stopping:
            thread.join()
        if stop.is_set():
            heartbeat.send("stopped")
        return 0 if stop.is_set() else 1
    finally:
        spark.stop()


def _kafka_answers(environment: Settings) -> bool:
    try:
        AdminClient({"bootstrap.servers": environment.kafka_bootstrap_servers}).list_topics(timeout=_KAFKA_SECONDS)
    except KafkaException as error:
        log.warning("Waiting for Kafka: %s", error.args[0].str())
        return False
    return True


def _check_slots(spark: SparkSession, environment: Settings, stages: tuple[Stage, ...], lane_slots: int) -> None:
    """In real-time mode a partition without a slot is silently never read, so too few slots are rejected."""
    needed = sum(_partitions(environment, s) if s.form is Form.QUERY else lane_slots for s in stages)
    available = _slots(spark, needed)
    if needed > available:
        raise StartError(
            f"{', '.join(stage.name for stage in stages)} need {needed} task slots (one per partition of the adapting "
            f"query's topic and per lane task), but Spark has {available}. Give it more (HEADRACE_SPARK_MASTER), or "
            "run fewer stages in this application."
        )


def _partitions(environment: Settings, stage: Stage) -> int:
    """The number of partitions of the stage's topic. Raises StartError."""
    assert stage.topic is not None
    admin = AdminClient({"bootstrap.servers": environment.kafka_bootstrap_servers})
    topic = admin.list_topics(stage.topic, timeout=_KAFKA_SECONDS).topics[stage.topic]
    if topic.error is not None:
        raise StartError(f"Topic {stage.topic} cannot be read: {topic.error.str()}.")
    return len(topic.partitions)


def _slots(spark: SparkSession, needed: int) -> int:
    """The number of tasks that can run at the same time. Waits for a cluster's executors, which register one by one."""
    deadline = time.monotonic() + _EXECUTORS_SECONDS
    while (available := spark.sparkContext.defaultParallelism) < needed:
        if (spark.sparkContext.master or "").startswith("local") or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    return available


def _start(
    spark: SparkSession, environment: Settings, stage: Stage, lane_slots: int, query: QueryOptions
) -> RunningStage:
    if stage.form is Form.QUERY:
        return _start_query(spark, environment, query)
    return _start_tasks(spark, environment, stage, lane_slots)


def _start_query(spark: SparkSession, environment: Settings, options: QueryOptions) -> RunningStage:
    servers = environment.kafka_bootstrap_servers
    query = adapting.start(
        spark,
        bootstrap_servers=servers,
        checkpoint=options.checkpoint,
        batch_seconds=options.batch_seconds,
    )

    def failure() -> str | None:
        error = query.exception()
        return str(error).splitlines()[0] if error else None

    return RunningStage(
        ADAPTING.name,
        0,
        lambda: query.isActive,
        failure,
        progress=functools.partial(adapting.progress, query),
        stop=functools.partial(adapting.stop, query, bootstrap_servers=servers, batch_seconds=options.batch_seconds),
    )


def _start_tasks(spark: SparkSession, environment: Settings, stage: Stage, slots: int) -> RunningStage:
    context = spark.sparkContext
    channel = StopChannel(context.getConf().get("spark.driver.host", socket.gethostname()))
    body = functools.partial(_run_partition, stage, environment, channel.address, slots)
    errors: list[str] = []

    def job() -> None:
        context.setJobDescription(f"lane {stage.name}")
        try:
            context.parallelize(range(slots), slots).foreachPartition(body)
        except Exception as error:
            errors.append(str(error).splitlines()[0])

    thread = InheritableThread(target=job, name=f"lane-{stage.name}", daemon=True)
    thread.start()

    def stop() -> None:
        channel.stop()
        thread.join()

    return RunningStage(stage.name, slots, thread.is_alive, lambda: next(iter(errors), None), dict, stop)


def _run_partition(
    stage: Stage, environment: Settings, stop_address: tuple[str, int], slots: int, partition: Iterable[int]
) -> None:
    for slot in partition:
        if stage.form is Form.INPUT:
            run_input_slot(stage, environment, stop_address, slot)
        else:
            lane = importlib.import_module(f"spark_jobs.jobs.{stage.name}").LANE
            run_slot(lane, environment, stop_address, slot, slots)


class _Heartbeat:
    """Shows the console that the application is running. An unavailable Redis never stops the work."""

    def __init__(self, job: str, application_id: str, redis_url: str, stages: list[RunningStage]) -> None:
        self._key = keys.job_heartbeat(job)
        self._redis = redis_client(redis_url)
        self._stages = stages
        self._fixed = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "application_id": application_id,
            "started_at": time.time(),
        }

    def send(self, state: str) -> None:
        beat = {
            **self._fixed,
            "state": state,
            "at": time.time(),
            "stages": {
                stage.name: {"alive": stage.alive(), "slots": stage.slots, **stage.progress()} for stage in self._stages
            },
        }
        try:
            self._redis.set(self._key, json.dumps(beat), ex=_HEARTBEAT_KEPT_SECONDS)
        except (RedisError, OSError) as error:
            log.warning("The heartbeat could not be sent: %s", error)


if __name__ == "__main__":
    sys.exit(main())
