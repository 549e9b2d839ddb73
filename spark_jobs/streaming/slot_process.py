"""What every long-running task does first with its process, a Python worker of Spark."""

import gc
import logging

from backend.network.files import raise_file_limit

_GARBAGE = 20_000


def prepare_process(stage: str, slot: int) -> None:
    """Sets up logging, open files and garbage collection."""
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s %(levelname)s {stage}[{slot}] %(message)s")
    # Azure's client logs every request as information.
    logging.getLogger("azure").setLevel(logging.WARNING)
    raise_file_limit()
    # Thousands of messages in flight are not garbage: a collection after every 700 objects cost a tenth of the time
    # of lanes, and a quarter of that of the exporter.
    gc.freeze()
    gc.set_threshold(_GARBAGE)
