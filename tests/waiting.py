import time
from collections.abc import Callable

import pytest


def wait_until(condition: Callable[[], object], timeout: float = 30.0, interval: float = 0.05) -> None:
    """Returns once the condition holds; fails the test when it does not in time."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"Not true within {timeout:g} s: {condition}")
        time.sleep(interval)
