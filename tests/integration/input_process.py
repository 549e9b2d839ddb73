"""The task that reads batching inputs as a process of its own, so that a test can kill it:
``python -m tests.integration.input_process STOP_PORT``."""

import sys

from backend.domain.stages import INPUT_BATCHING
from backend.settings import Settings
from spark_jobs.streaming.input_lane import run_input_slot

if __name__ == "__main__":
    run_input_slot(INPUT_BATCHING, Settings(), ("127.0.0.1", int(sys.argv[1])), 0)
