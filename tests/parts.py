"""All tests, in parts that run side by side: ``python -m tests.parts [--only PART] [--busy] [PYTEST ARGUMENTS]``.

Most of the time a test waits for a server. Each part is a pytest process with servers of its own.
What a part says is printed when it ends.

Once all have ended, with nothing beside it, each test that failed runs once more in a process of its own, and so do
all tests of a part together whose servers did not start. What passes then is unstable: it is printed and written to
``var/unstable-tests.txt``. What fails again fails the whole, and so do more than MOST_UNSTABLE unstable ones. The last
line counts the tests of all parts.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import psutil

from backend.settings import ROOT
from tests import failures
from tests.failures import Failure

PARTS = {
    "fast": ["tests/unit", "tests/contract"],
    "platform": ["tests/e2e"],
    "console": ["tests/integration/console"],
    "connectors": ["tests/integration/connectors"],
    "outages": [
        "tests/chaos",
        "tests/e2e/test_outages.py",
        "tests/e2e/test_streaming_connectors.py",
        "tests/e2e/test_supervision.py",
    ],
    "data-plane": ["tests/integration/data_plane"],
    "clusters": ["tests/e2e/test_compose.py", "tests/e2e/test_own_kafka.py", "tests/e2e/test_standalone.py"],
    "rest": ["tests"],
    "read-gateway": ["tests/integration/read_gateway"],
    "kafka-proxy": ["tests/integration/kafka_proxy"],
    "kafka-proxy-faults": [
        "tests/integration/kafka_proxy/test_faults.py",
        "tests/integration/kafka_proxy/test_security.py",
    ],
}
"""Folders and files by part: first what is soon known, since it needs no server, then the longest part first.

A path belongs to the part that names it most closely, so every test belongs to exactly one."""

AT_ONCE = (os.cpu_count() or 1) + 1
"""The servers of a part take time of the cores as long as it runs, also while its tests wait."""
MOST_AT_ONCE = AT_ONCE + 1
"""As long as the cores have much time left."""
_USED_PERCENT = 80.0
_LOOK_SECONDS = 30.0
"""Over which the use of the cores is measured: some starts of servers, and the waits between them."""

MOST_UNSTABLE = 10
UNSTABLE = ROOT / "var/unstable-tests.txt"

_OUTCOMES = {"passed": "passed", "failed": "failed", "error": "failed", "errors": "failed", "skipped": "skipped"}
_LAST_LINES = 60
"""Of the log of a part that ended early: enough for the stack of its thread."""
_SUMMARY = re.compile(r"^(=+ )?(\d+ \w+|no tests ran).* in [\d.]+s( .*)?$")


@dataclass
class Part:
    """One that has been started; a repetition is one as well."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    failures_file: Path
    began: float
    seconds: float = 0.0

    def summary(self) -> str:
        """The last line of pytest's own; nothing when it did not come so far."""
        summaries = [line for line in self.log.read_text(errors="replace").splitlines() if _SUMMARY.match(line)]
        return summaries[-1] if summaries else ""

    @property
    def passed(self) -> bool:
        return self.process.returncode == 0

    @property
    def broke_off(self) -> bool:
        """Whether pytest ended early, so that not every failure is known."""
        return not self.passed and not (self.summary() and self.failures())

    def failures(self) -> list[Failure]:
        return failures.read(self.failures_file)

    def reasons(self) -> list[str]:
        """A line for each test that failed, or the end of the log when pytest ended early."""
        if self.broke_off:
            lines = self.log.read_text(errors="replace").splitlines()
            return _crash(lines) or lines[-_LAST_LINES:]
        return [f"{'ERROR' if one.starting else 'FAILED'} {one.name} - {one.said}" for one in self.failures()]

    def counts(self) -> Counter[str]:
        """How many tests passed, failed and were skipped. A part that did not succeed has failed at least once."""
        counts: Counter[str] = Counter()
        for number, word in re.findall(r"(\d+) (\w+)", self.summary()):
            if word in _OUTCOMES:
                counts[_OUTCOMES[word]] += int(number)
        if not self.passed:
            counts["failed"] = max(len(self.failures()), 1)
        return counts


@dataclass(frozen=True)
class Repetition:
    """What failed and ran once more. ``failed`` is how many tests had failed."""

    name: str
    said: str
    failed: int
    again: Part

    def __str__(self) -> str:
        return f"UNSTABLE {self.name} ({self.said})"


def _crash(lines: list[str]) -> list[str]:
    """What Python printed when a signal ended it, from the thread that was running; nothing if it printed nothing."""
    first = next((number for number, line in enumerate(lines) if line.startswith("Fatal Python error")), len(lines))
    return lines[first : first + _LAST_LINES]


def arguments(name: str) -> list[str]:
    """Pytest's: the paths of the part without what is another's."""
    own = PARTS[name]
    others = [path for part, paths in PARTS.items() if part != name for path in paths]
    ignored = [path for path in others if any(Path(path).is_relative_to(mine) for mine in own)]
    return [*own, *(f"--ignore={path}" for path in ignored)]


def started(name: str, tests: Sequence[str], folder: Path, more: Sequence[str]) -> Part:
    log, failures_file = folder / f"{name}.log", folder / f"{name}.failures"
    # Each has a cache of its own, since pytest writes the whole of it at the end.
    options = ["-o", f"cache_dir={ROOT / '.pytest_cache' / name}", "--color=no", "--durations=10", *more]
    reported = ["-p", "tests.failures", "--failures", str(failures_file)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *tests, *options, *reported],
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env=os.environ,
        )
    print(f"{name}: started", flush=True)
    return Part(name, process, log, failures_file, time.monotonic())


def ended(part: Part) -> Part:
    part.process.wait()
    part.seconds = time.monotonic() - part.began
    print(f"\n######## {part.name}: {part.seconds:.0f} s\n", flush=True)
    print(part.log.read_text(errors="replace"), flush=True)
    return part


def run(names: Sequence[str], folder: Path, more: Sequence[str]) -> list[Part]:
    waiting, running, done = list(names), list[Part](), list[Part]()
    at_once, looked = AT_ONCE, time.monotonic()
    psutil.cpu_percent()  # since when the next call measures
    try:
        while waiting or running:
            if time.monotonic() - looked > _LOOK_SECONDS:
                at_once, looked = MOST_AT_ONCE if psutil.cpu_percent() < _USED_PERCENT else AT_ONCE, time.monotonic()
            while waiting and len(running) < at_once:
                name = waiting.pop(0)
                running.append(started(name, arguments(name), folder, more))
            time.sleep(0.2)
            for part in [part for part in running if part.process.poll() is not None]:
                running.remove(part)
                done.append(ended(part))
    except KeyboardInterrupt:  # the parts have heard it, too, and bring their servers down
        for part in running:
            part.process.wait()
        raise
    return done


def repeat(parts: Sequence[Part], folder: Path, more: Sequence[str]) -> list[Repetition]:
    """Runs what failed once more, one after the other. Nothing runs when more failed than may be unstable."""
    repetitions: list[Repetition] = []
    planned = [one for part in parts if not part.passed for one in _planned(part)]
    if len(planned) > MOST_UNSTABLE:
        return []
    for name, said, tests, failed in planned:
        again = ended(started(f"repetition-{len(repetitions) + 1}", tests, folder, more))
        repetitions.append(Repetition(name, said, failed, again))
    return repetitions


def _planned(part: Part) -> list[tuple[str, str, list[str], int]]:
    """Name, reason, tests and their number of each repetition that a part needs."""
    if part.broke_off:
        return [(part.name, "pytest ended early", arguments(part.name), part.counts()["failed"])]
    starting = [one for one in part.failures() if one.starting]
    alone = [(one.name, one.said, [one.test], 1) for one in part.failures() if not one.starting]
    if not starting:
        return alone
    names = starting[0].name + (f" and {len(starting) - 1} more of {part.name}" if len(starting) > 1 else "")
    return [(names, starting[0].said, [one.test for one in starting], len(starting)), *alone]


def total(parts: Sequence[Part], repetitions: Sequence[Repetition]) -> Counter[str]:
    """The tests of all parts; one that passed when it was repeated counts as passed and as unstable."""
    counts = sum((part.counts() for part in parts), Counter[str]())
    for one in repetitions:
        if one.again.passed:
            counts["failed"] -= one.failed
            counts["passed"] += one.again.counts()["passed"]
            counts["unstable"] += 1
    return counts


@contextmanager
def busy_cores() -> Iterator[None]:
    """Meanwhile every core computes something else as well, as on a machine that others use."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="All tests, or those of some parts. Other options are pytest's.")
    parser.add_argument("--only", action="append", choices=PARTS, metavar="PART", help="a part: " + ", ".join(PARTS))
    parser.add_argument("--busy", action="store_true", help="while every core is busy with something else")
    options, more = parser.parse_known_args(arguments)
    with busy_cores() if options.busy else nullcontext():
        return run_all(options.only or list(PARTS), more)


def run_all(names: Sequence[str], more: Sequence[str]) -> int:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headrace-parts-") as name:
        folder = Path(name)
        parts = run(names, folder, more)
        repetitions = repeat(parts, folder, more)
        print("\n######## all parts\n")
        for part in parts:
            summary = part.summary() or "ended without a summary"
            print(f"{part.name}: {summary} (exit status {part.process.returncode}, {part.seconds:.0f} s)")
            for line in part.reasons():
                print(line)
        unstable = [str(one) for one in repetitions if one.again.passed]
        failed_again = [one for one in repetitions if not one.again.passed]
        for one in failed_again:
            print(f"FAILED AGAIN {one.name}", *one.again.reasons(), sep="\n")
        print(*unstable, sep="\n", end="\n" if unstable else "")
        UNSTABLE.parent.mkdir(exist_ok=True)
        UNSTABLE.write_text("".join(f"{line}\n" for line in unstable))
        counts = total(parts, repetitions)
    more_words = [f"{counts[word]} {word}" for word in ("skipped", "unstable") if counts[word]]
    counted = ", ".join([f"{counts['passed']} passed, {counts['failed']} failed", *more_words])
    print(f"{time.monotonic() - began:.0f} s in all\n{counted}", flush=True)
    if kept := os.environ.get("TESTS_COUNTED"):
        Path(kept).write_text(counted + "\n")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
