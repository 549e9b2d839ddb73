"""All tests, in parts that run side by side: ``python -m tests.parts [PYTEST ARGUMENTS]``.

Most of the time a test waits for a server. Each part is a pytest process with servers of its own.
What a part says is printed when it ends; the last line counts the tests of all parts.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from backend.settings import ROOT

PARTS = {
    "console": ["tests/integration/console"],
    "outages": [
        "tests/chaos",
        "tests/e2e/test_outages.py",
        "tests/e2e/test_streaming_connectors.py",
        "tests/e2e/test_supervision.py",
    ],
    "platform": ["tests/e2e"],
    "data-plane": ["tests/integration/data_plane"],
    "connectors": ["tests/integration/connectors"],
    "kafka-proxy": ["tests/integration/kafka_proxy"],
    "kafka-proxy-faults": [
        "tests/integration/kafka_proxy/test_faults.py",
        "tests/integration/kafka_proxy/test_security.py",
    ],
    "read-gateway": ["tests/integration/read_gateway"],
    "clusters": ["tests/e2e/test_compose.py", "tests/e2e/test_own_kafka.py", "tests/e2e/test_standalone.py"],
    "rest": ["tests"],
}
"""Folders and files by part, the longest part first. A path belongs to the part that names it most closely,
so every test belongs to exactly one."""

AT_ONCE = 1 + (os.cpu_count() or 1)
"""One more than there are cores, since each waits half of its time."""

_OUTCOMES = {"passed": "passed", "failed": "failed", "error": "failed", "errors": "failed", "skipped": "skipped"}
_LAST_LINES = 60
"""Of the log of a part that ended early: enough for the stack of its thread."""
_SUMMARY = re.compile(r"^(=+ )?(\d+ \w+|no tests ran).* in [\d.]+s( .*)?$")


@dataclass
class Part:
    """One that has been started."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    began: float

    def summary(self) -> str:
        """The last line of pytest's own; nothing when it did not come so far."""
        summaries = [line for line in self.log.read_text(errors="replace").splitlines() if _SUMMARY.match(line)]
        return summaries[-1] if summaries else ""

    def failures(self) -> list[str]:
        """The tests that failed, or the end of the log when pytest ended early."""
        lines = self.log.read_text(errors="replace").splitlines()
        if self.process.returncode != 0 and not self.summary():
            return _crash(lines) or lines[-_LAST_LINES:]
        return [line for line in lines if line.startswith(("FAILED ", "ERROR "))]

    def counts(self) -> Counter[str]:
        """How many tests passed, failed and were skipped. A part that did not succeed has failed at least once."""
        counts: Counter[str] = Counter()
        for number, word in re.findall(r"(\d+) (\w+)", self.summary()):
            if word in _OUTCOMES:
                counts[_OUTCOMES[word]] += int(number)
        if self.process.returncode != 0 and not counts["failed"]:
            counts["failed"] = 1
        return counts


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


def started(name: str, folder: Path, more: Sequence[str]) -> Part:
    log = folder / f"{name}.log"
    # Each has a cache of its own, since pytest writes the whole of it at the end.
    options = ["-o", f"cache_dir={ROOT / '.pytest_cache' / name}", "--color=no", "--durations=10", *more]
    command = [sys.executable, "-m", "pytest", *arguments(name), *options]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT, env=os.environ)
    print(f"{name}: started", flush=True)
    return Part(name, process, log, time.monotonic())


def run(folder: Path, more: Sequence[str]) -> list[Part]:
    waiting, running, ended = list(PARTS), list[Part](), list[Part]()
    try:
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                running.append(started(waiting.pop(0), folder, more))
            time.sleep(0.2)
            for part in [part for part in running if part.process.poll() is not None]:
                running.remove(part)
                ended.append(part)
                print(f"\n######## {part.name}: {time.monotonic() - part.began:.0f} s\n", flush=True)
                print(part.log.read_text(errors="replace"), flush=True)
    except KeyboardInterrupt:  # the parts have heard it, too, and bring their servers down
        for part in running:
            part.process.wait()
        raise
    return ended


def main(more: Sequence[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="headrace-parts-") as folder:
        parts = run(Path(folder), more)
        print("\n######## all parts\n")
        for part in parts:
            print(f"{part.name}: {part.summary() or 'ended without a summary'} (exit status {part.process.returncode})")
            for line in part.failures():
                print(line)
        counts = sum((part.counts() for part in parts), Counter[str]())
    skipped = f", {counts['skipped']} skipped" if counts["skipped"] else ""
    counted = f"{counts['passed']} passed, {counts['failed']} failed{skipped}"
    print(counted, flush=True)
    if kept := os.environ.get("TESTS_COUNTED"):
        Path(kept).write_text(counted + "\n")
    return 1 if any(part.process.returncode != 0 for part in parts) else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
