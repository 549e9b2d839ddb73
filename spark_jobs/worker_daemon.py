"""Spark's daemon of Python workers (``spark.python.daemon.module``), which imports the lanes before it forks workers.

Importing takes a worker 1.5 s of CPU time and 90 MB. A forked worker has the modules at once and shares their memory,
which shortens the start of the application and the restart of a task. The daemon also counts which records end their
workers (streaming/worker_deaths.py).
"""

import contextlib
import gc
import importlib
import sys

from pyspark.daemon import manager

from backend.domain.stages import STAGES, Form
from spark_jobs.jobs import module_of
from spark_jobs.streaming.worker_deaths import watch_workers

if __name__ == "__main__":
    importlib.import_module("spark_jobs.streaming.input_lane")
    for stage in STAGES:
        if stage.form in (Form.LANE, Form.STORE):
            # A module of a plugin that fails is imported again by its own tasks, which say so; one that prints would
            # write into what Spark reads.
            with contextlib.suppress(Exception), contextlib.redirect_stdout(sys.stderr):
                module_of(stage)
    # A collection would write to every object, so that each worker would get its own copy of the memory.
    gc.freeze()
    watch_workers()
    manager()
