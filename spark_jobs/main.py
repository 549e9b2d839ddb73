"""Runs stages in one Spark application: ``spark-submit spark_jobs/main.py --job NAME --stages NAME,NAME``.

SIGTERM drains: lanes finish what they hold, commit, and the application exits with 0. A part of a stage
that fails is started again by itself. The application exits with 1 when Spark ends, and with 2 when it
cannot start as configured.
"""

import argparse
import logging
import os
import signal
import sys
import threading

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from backend.domain.stages import STAGES, Stage, stage_named
from backend.settings import Settings, environment_of, platform_settings
from backend.telemetry.metrics_server import serve_metrics
from spark_jobs.reporting import REPORT_SECONDS, Reporter
from spark_jobs.running_stages import Options, RunningStages, StartError

log = logging.getLogger("spark_jobs")

_KAFKA_SECONDS = 10.0
_STORE_CREDENTIALS = ("AWS_", "AZURE_STORAGE_", "GOOGLE_APPLICATION_CREDENTIALS")
"""How the variables begin by which the clients of object stores sign in."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", required=True, help="name under which the application reports itself")
    names = ", ".join(stage.name for stage in STAGES)
    parser.add_argument("--stages", required=True, help=f"comma-separated, of {names}")
    parser.add_argument("--slots", type=int, default=1, help="lane tasks per lane stage")
    parser.add_argument("--checkpoints", required=True, help="folder or URL for Spark's checkpoints")
    parser.add_argument("--batch-seconds", type=int, default=30, help="seconds between two checkpoints")
    parser.add_argument("--token", type=int, default=0, help="fencing token: the number of the job's start")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s driver %(message)s")
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    try:
        stages = tuple(map(stage_named, arguments.stages.split(",")))
    except KeyError as error:
        parser.error(f"unknown stage: {error}")
    options = Options(arguments.slots, arguments.checkpoints, arguments.batch_seconds)
    try:
        return run(arguments.job, arguments.token, stages, options, stop)
    except StartError as error:
        log.error("%s", error)
        return 2


def run(job: str, token: int, stages: tuple[Stage, ...], options: Options, stop: threading.Event) -> int:
    """Runs until ``stop`` is set, the manager asks to drain, or Spark itself ends; the process's exit status."""
    environment = platform_settings()
    serve_metrics("driver")
    spark = _session(job, environment)
    context = spark.sparkContext
    context.setLogLevel("WARN")

    def drain() -> None:
        if not stop.is_set():
            log.warning("The manager asks this application to drain: it was stopped, or a later one was started.")
            stop.set()

    reporter = Reporter(environment, job=job, token=token, application_id=context.applicationId, drain=drain)
    try:
        # Failing here would only delay the work by the back-off between two starts.
        while not _kafka_answers(environment) and not stop.is_set():
            reporter.send("waiting for Kafka", {})
            stop.wait(REPORT_SECONDS)
        if stop.is_set():
            return 0
        reporter.send("starting", {})  # the answer says which stages are needed
        running = RunningStages(spark, environment, stages, options, reporter)
        running.start()
        while not stop.is_set() and not context._jsc.sc().isStopped():  # type: ignore[union-attr]
            running.report("running")
            running.adjust()
            stop.wait(REPORT_SECONDS)
        running.stop()
        running.report("stopping")
        while not running.ended(REPORT_SECONDS):
            running.report("stopping")
        if stop.is_set():
            running.report("stopped")
        return 0 if stop.is_set() else 1
    finally:
        spark.stop()


def _session(job: str, environment: Settings) -> SparkSession:
    """The executors, on whatever machine, get the driver's settings, and credentials of object stores, as their
    environment. Python tasks inherit it, so these secrets are left out of what is sent with each task."""
    builder = SparkSession.builder.appName(f"headrace-{job}")
    credentials = {name: value for name, value in os.environ.items() if name.startswith(_STORE_CREDENTIALS)}
    variables = environment_of(environment) | credentials
    for name, value in variables.items():
        builder = builder.config(f"spark.executorEnv.{name}", value)
    spark = builder.getOrCreate()
    for name in variables:
        spark.sparkContext.environment.pop(name, None)
    return spark


def _kafka_answers(environment: Settings) -> bool:
    try:
        AdminClient(environment.kafka.client()).list_topics(timeout=_KAFKA_SECONDS)
    except KafkaException as error:
        log.warning("Waiting for Kafka: %s", error.args[0].str())
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
