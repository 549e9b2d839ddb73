"""A task of the data plane as a process: ``python -m tests.bench.connectors.slot input|exporter STOP_PORT``."""

import sys

from backend.domain.stages import INPUT_BATCHING
from backend.settings import Settings
from spark_jobs.jobs import exporter
from spark_jobs.streaming.input_lane import run_input_slot

if __name__ == "__main__":
    stop_address = "127.0.0.1", int(sys.argv[2])
    if sys.argv[1] == "input":
        run_input_slot(INPUT_BATCHING, Settings(), stop_address, 0)
    else:
        exporter.run_slot(Settings(), stop_address, 0)
