"""How long-running processes of the console import what they need."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """No garbage is collected meanwhile, and what exists at the end is never searched for any.

    What is imported is no garbage: searching it took a sixth of the CPU of the console's start, and 50 ms at a time
    later, during which nobody was answered.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
