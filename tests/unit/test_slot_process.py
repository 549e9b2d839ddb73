"""The memory of a task's process is bounded."""

import subprocess
import sys

EATS = """
from spark_jobs.streaming.slot_process import prepare_process

prepare_process("test", 0, memory=512 * 1024**2)
for _ in range(3):
    eaten = []
    try:
        while True:
            eaten.append(bytearray(10_000_000))
    except MemoryError:
        print(len(eaten))
        del eaten
"""

FAILS = """
from spark_jobs.streaming.slot_process import Garbage, prepare_process

prepare_process("test", 0, memory=768 * 1024**2)
garbage = Garbage()
for _ in range(2000):
    body = bytearray(1_000_000)
    error = ValueError(body)
    error.cause = error
    garbage.handled(len(body))
    del body, error
print("done")
"""


def test_neighbours_4_what_eats_memory_ends_as_a_memory_error_and_its_process_lives() -> None:
    done = subprocess.run([sys.executable, "-c", EATS], capture_output=True, text=True, check=True)
    counts = [int(line) for line in done.stdout.split()]
    assert len(counts) == 3
    assert all(20 < count < 54 for count in counts)


def test_what_failures_leave_behind_does_not_eat_memory() -> None:
    done = subprocess.run([sys.executable, "-c", FAILS], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("done", "")
