"""What every long-running task does first with its process, a Python worker of Spark."""

import contextlib
import gc
import logging
import resource

from backend.network.files import raise_file_limit

_GARBAGE = 20_000
_GARBAGE_OF_LANES = 200_000
_GARBAGE_BYTES = 128 * 1024**2


def prepare_process(stage: str, slot: int, memory: int | None = None) -> None:
    """Sets up logging, open files and garbage collection. ``memory`` bounds the bytes that it may allocate."""
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s %(levelname)s {stage}[{slot}] %(message)s")
    # Azure's client logs every request as information.
    logging.getLogger("azure").setLevel(logging.WARNING)
    raise_file_limit()
    if memory is not None:
        _bound_memory(memory)
    # Rows and messages in memory are not garbage: a collection after every 700 objects took a quarter of the time of
    # the exporter.
    gc.freeze()
    gc.set_threshold(_GARBAGE)


class Garbage:
    """Collects what references itself, such as an error with its frames, after so many bytes of messages: few objects
    may hold large ones. So objects need not be counted as closely as elsewhere."""

    def __init__(self) -> None:
        self._bytes = 0
        # Each message in flight has dozens of objects, so that a burst of them reaches 20,000: searching these took a
        # fifth of the time of lanes.
        gc.set_threshold(_GARBAGE_OF_LANES)

    def handled(self, size: int) -> None:
        """Messages of that many bytes, with what was made of them, are done."""
        self._bytes += size
        if self._bytes > _GARBAGE_BYTES:
            self._bytes = 0
            gc.collect(1)


def _bound_memory(most: int) -> None:
    """An allocation beyond it fails, in Python as a MemoryError, instead of one of any process of the machine."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    with contextlib.suppress(OSError, ValueError):  # the hard limit is lower
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
