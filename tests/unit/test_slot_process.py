"""The memory of a task's process is bounded."""

import subprocess
import sys

PROGRAM = """
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


def test_neighbours_4_what_eats_memory_ends_as_a_memory_error_and_its_process_lives() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    counts = [int(line) for line in done.stdout.split()]
    assert len(counts) == 3
    assert all(20 < count < 54 for count in counts)
