"""A pytest plugin that writes each failure as a line of JSON: ``-p tests.failures --failures FILE``."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Failure:
    """A test that failed. ``test`` is what pytest is given to run it, ``name`` what is shown, ``said`` one line.

    ``starting`` means that a fixture failed before the test began: mostly a server that did not start.
    """

    test: str
    name: str
    said: str
    starting: bool


class _Writer:
    def __init__(self, path: Path, root: Path) -> None:
        self._path = path
        self._root = root

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._write(report.nodeid, report.longrepr, starting=report.when == "setup")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write(report.nodeid, report.longrepr, starting=False)

    def _write(self, node: str, failed_with: object, *, starting: bool) -> None:
        crash = getattr(failed_with, "reprcrash", None)
        said = str(crash.message if crash is not None else failed_with).strip()
        line = json.dumps(asdict(Failure(str(self._root / node), node, said.partition("\n")[0], starting)))
        with self._path.open("a") as file:
            file.write(line + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--failures", type=Path, help="file to which each failure is added as a line of JSON")


def pytest_configure(config: pytest.Config) -> None:
    if path := config.getoption("--failures"):
        config.pluginmanager.register(_Writer(path, config.rootpath))


def read(path: Path) -> list[Failure]:
    """The failures, each test once: one that failed and whose fixture failed afterwards has two."""
    failures: Iterable[Failure] = (
        [Failure(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []
    )
    return list({failure.test: failure for failure in reversed(list(failures))}.values())[::-1]
