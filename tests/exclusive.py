"""What test processes that run at the same time do one after the other."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from backend.settings import ROOT


@contextmanager
def exclusive(name: str) -> Iterator[None]:
    """Waits while another process does what has this name in the project's own ``var`` folder.

    One that downloads keeps the others from finding half of it.
    """
    folder = ROOT / "var"
    folder.mkdir(exist_ok=True)
    with (folder / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
