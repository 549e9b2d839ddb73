"""The tests' own runner: a failure in any part fails the whole, and no test is left out."""

from collections import Counter
from pathlib import Path

import psutil
import pytest

from backend.settings import ROOT
from tests import parts

GREEN = "import pytest\ndef test_a(): pass\ndef test_b(): pass\ndef test_c(): pytest.skip('no')\n"
RED = "def test_a(): pass\ndef test_b(): assert False\n"
BROKEN = "import nothing_that_exists\n"
EMPTY = "\n"
ABORTED = "import os\ndef test_a(): os.abort()\n"
ONCE = """
import os, pathlib, pytest
def first(name):
    path = pathlib.Path(__file__).with_name(name)
    if not path.exists():
        path.touch()
        return True
"""
"""Says whether something is done for the first time, in whichever process."""
FAILS_ONCE = ONCE + "def test_a(): pass\ndef test_b(): assert not first('b'), 'the topic was empty'\n"
STARTS_LATE = (
    ONCE
    + "@pytest.fixture(scope='session')\ndef server():\n    if first('s'): raise OSError('port in use')\n"
    + "def test_a(server): pass\ndef test_b(server): pass\ndef test_c(): pass\n"
)
ABORTED_ONCE = ONCE + "def test_a(): pass\ndef test_b(): first('b') and os.abort()\n"
MANY = (
    ONCE + f"@pytest.mark.parametrize('n', range({parts.MOST_UNSTABLE + 1}))\ndef test_a(n): assert not first(str(n))\n"
)


MEETING = (
    "import pathlib, time\n"
    "def test_a():\n    here = pathlib.Path(__file__)\n    here.with_suffix('.here').touch()\n"
    f"    while len(list(here.parent.glob('*.here'))) < {parts.MOST_AT_ONCE}: time.sleep(0.1)\n"
)
"""Ends when so many run at the same time."""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    def run(*contents: str) -> tuple[int, str, str]:
        """Exit status, output and its last line."""
        paths = {f"part{number}": tmp_path / f"test_part{number}.py" for number in range(len(contents))}
        for path, content in zip(paths.values(), contents, strict=True):
            path.write_text(content)
        monkeypatch.setattr(parts, "UNSTABLE", tmp_path / "unstable-tests.txt")
        monkeypatch.setattr(parts, "PARTS", {name: [str(path)] for name, path in paths.items()})
        monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # none is needed, and they take seconds
        monkeypatch.delenv("TESTS_COUNTED", raising=False)
        settings = tmp_path / "pytest.ini"
        settings.write_text("[pytest]\n")
        status = parts.main(["-c", str(settings), "-p", "no:cacheprovider"])
        printed = capsys.readouterr().out
        return status, printed, printed.splitlines()[-1]

    return run


def test_the_tests_of_all_parts_are_counted(run) -> None:  # type: ignore[no-untyped-def]
    status, printed, last = run(GREEN, GREEN)
    assert (status, last) == (0, "4 passed, 0 failed, 2 skipped")
    assert printed.count("= 2 passed, 1 skipped") == 4  # each when it ends, and once more at the end


@pytest.mark.parametrize(
    ("content", "last"),
    [
        (RED, "3 passed, 1 failed, 1 skipped"),
        (BROKEN, "2 passed, 1 failed, 1 skipped"),
        (EMPTY, "2 passed, 1 failed, 1 skipped"),
    ],
    ids=["failed", "broken", "empty"],
)
def test_what_goes_wrong_in_one_part_fails_the_whole(run, content: str, last: str) -> None:  # type: ignore[no-untyped-def]
    status, _, printed = run(GREEN, content)
    assert (status, printed) == (1, last)


def test_one_more_part_runs_while_the_cores_have_much_time_left(run, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    used = iter([0.0, 100.0])  # at the beginning, and at first
    monkeypatch.setattr(parts, "_LOOK_SECONDS", 1.0)
    monkeypatch.setattr(psutil, "cpu_percent", lambda: next(used, 0.0))
    status, _, last = run(*[MEETING] * parts.MOST_AT_ONCE)
    assert (status, last) == (0, f"{parts.MOST_AT_ONCE} passed, 0 failed")


def test_every_file_of_tests_belongs_to_one_part() -> None:
    belonging: Counter[Path] = Counter()
    for name in parts.PARTS:
        arguments = parts.arguments(name)
        ignored = [ROOT / one.removeprefix("--ignore=") for one in arguments if one.startswith("--ignore=")]
        for path in (ROOT / one for one in arguments if not one.startswith("--")):
            files = [path] if path.is_file() else path.rglob("test_*.py")
            belonging.update(file for file in files if not any(file.is_relative_to(one) for one in ignored))
    assert belonging == Counter(dict.fromkeys((ROOT / "tests").rglob("test_*.py"), 1))


def test_the_end_of_the_output_says_why_a_part_ended_early(run) -> None:  # type: ignore[no-untyped-def]
    status, printed, last = run(GREEN, ABORTED)
    assert (status, last) == (1, "2 passed, 1 failed, 1 skipped")
    at_the_end = printed.partition("######## all parts")[2]
    assert "ended without a summary (exit status -6, " in at_the_end
    assert "Fatal Python error: Aborted" in at_the_end


def test_a_test_that_fails_once_is_unstable_and_one_that_always_fails_is_red(  # type: ignore[no-untyped-def]
    run, tmp_path: Path
) -> None:
    status, printed, last = run(FAILS_ONCE, RED)
    assert (status, last) == (1, "3 passed, 1 failed, 1 unstable")
    line = "UNSTABLE test_part0.py::test_b (AssertionError: the topic was empty)"
    assert line in printed
    assert (tmp_path / "unstable-tests.txt").read_text() == f"{line}\n"
    assert "FAILED AGAIN test_part1.py::test_b" in printed


@pytest.mark.parametrize(
    ("content", "name", "last"),
    [
        (FAILS_ONCE, "test_part0.py::test_b (AssertionError", "2 passed, 0 failed, 1 unstable"),
        (STARTS_LATE, "test_part0.py::test_a and 1 more of part0 (OSError", "3 passed, 0 failed, 1 unstable"),
        (ABORTED_ONCE, "part0 (pytest ended early", "2 passed, 0 failed, 1 unstable"),
    ],
    ids=["test", "servers", "process"],
)
def test_what_passes_when_it_is_repeated_is_not_red(run, content: str, name: str, last: str) -> None:  # type: ignore[no-untyped-def]
    status, printed, counted = run(content)
    assert (status, counted) == (0, last)
    assert f"UNSTABLE {name}" in printed


def test_too_many_unstable_tests_are_red(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    status, _, last = run(MANY)
    assert (status, last) == (1, f"0 passed, {parts.MOST_UNSTABLE + 1} failed")
    assert (tmp_path / "unstable-tests.txt").read_text() == ""
