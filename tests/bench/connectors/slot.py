"""A task of the data plane as a process: ``python -m tests.bench.connectors.slot KIND STOP_PORT``."""

import sys

from backend.domain.stages import INPUT_BATCHING
from backend.settings import Settings
from spark_jobs.jobs import exporter, syndicating
from spark_jobs.streaming.input_lane import run_input_slot
from spark_jobs.streaming.lane_task import run_slot

if __name__ == "__main__":
    stop_address = "127.0.0.1", int(sys.argv[2])
    match sys.argv[1]:
        case "input":
            run_input_slot(INPUT_BATCHING, Settings(), stop_address, 0)
        case "syndicating":
            run_slot(syndicating.LANE, Settings(), stop_address, 0, slots=1)
        case "exporter":
            exporter.run_slot(Settings(), stop_address, 0)
