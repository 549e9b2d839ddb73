"""What every long-running task does first with its process, a Python worker of Spark."""

import contextlib
import gc
import logging
import resource

from backend.network.files import raise_file_limit

_GARBAGE = 20_000


def prepare_process(stage: str, slot: int, memory: int | None = None) -> None:
    """Sets up logging, open files and garbage collection. ``memory`` bounds the bytes that it may allocate."""
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s %(levelname)s {stage}[{slot}] %(message)s")
    # Azure's client logs every request as information.
    logging.getLogger("azure").setLevel(logging.WARNING)
    raise_file_limit()
    if memory is not None:
        _bound_memory(memory)
    # Thousands of messages in flight are not garbage: a collection after every 700 objects cost a tenth of the time
    # of lanes, and a quarter of that of the exporter.
    gc.freeze()
    gc.set_threshold(_GARBAGE)


def _bound_memory(most: int) -> None:
    """An allocation beyond it fails, in Python as a MemoryError, instead of one of any process of the machine."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    with contextlib.suppress(OSError, ValueError):  # the hard limit is lower
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
