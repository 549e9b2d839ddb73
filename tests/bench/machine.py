"""The machine that a benchmark ran on, and the cost of a set of processes."""

import os
import platform
import time
from pathlib import Path

import psutil


def machine() -> str:
    """A description of the machine for the head of a result."""
    memory = psutil.virtual_memory().total / 2**30
    model = next(
        (
            line.split(": ")[1]
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return f"{os.cpu_count()} cores ({model}), {memory:.0f} GiB, Python {platform.python_version()}"


def cost(processes: list[psutil.Process], seconds: float) -> tuple[float, float]:
    """The mean number of cores used over the time, and the memory in GiB with shared pages counted once (PSS)."""
    before = sum(sum(process.cpu_times()[:2]) for process in processes)
    time.sleep(seconds)
    after = sum(sum(process.cpu_times()[:2]) for process in processes)
    memory = sum(process.memory_full_info().pss for process in processes)
    return (after - before) / seconds, memory / 2**30
