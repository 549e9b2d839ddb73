"""The task that reads batching inputs as a process of its own, so that a test can kill it:
``python -m tests.integration.input_process STOP_PORT [SLOT LARGE_TABLE_ROWS]``. With the last two, it claims often, and
tables of so many rows are read in parts."""

import sys

from backend.connectors.parts.rows import reader
from backend.domain.stages import INPUT_BATCHING
from backend.settings import Settings
from spark_jobs.streaming import input_lane
from spark_jobs.streaming.input_lane import run_input_slot


def _main(port: str, slot: str = "0", large_table_rows: str = "") -> None:
    if large_table_rows:
        reader._LARGE_TABLE_ROWS = int(large_table_rows)
        input_lane._CLAIM_SECONDS = input_lane._RENEW_SECONDS = 0.2
    run_input_slot(INPUT_BATCHING, Settings(), ("127.0.0.1", int(port)), int(slot))


if __name__ == "__main__":
    _main(*sys.argv[1:])
