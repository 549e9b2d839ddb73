"""Stands in for ``spark-submit``: a driver without Spark, which reports itself as the real one does and drains on
SIGTERM or when the manager says so. ``--no-redis`` or ``--no-manager`` in JOB_DRIVER_FAULTS cut it off."""

import argparse
import os
import signal
import sys
import threading

from backend.settings import Settings
from spark_jobs.reporting import Reporter

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--job", required=True)
    parser.add_argument("--token", type=int, default=0)
    arguments, _ = parser.parse_known_args(sys.argv[sys.argv.index("--job") :])
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    faults = {name: "127.0.0.1:1" for name in os.environ.get("JOB_DRIVER_FAULTS", "").split()}
    settings = Settings()
    if "no-redis" in faults:
        settings = settings.model_copy(update={"redis_url": "redis://127.0.0.1:1/0"})
    if "no-manager" in faults:
        settings = settings.model_copy(update={"manager_address": "127.0.0.1:1"})
    reporter = Reporter(settings, job=arguments.job, token=arguments.token, application_id="local", drain=stop.set)
    while not stop.is_set():
        reporter.send("running", {})
        stop.wait(0.2)
    reporter.send("stopped", {})
