"""The tests' own runner: a failure in any part fails the whole, and no test is left out."""

from collections import Counter
from pathlib import Path

import pytest

from backend.settings import ROOT
from tests import parts

GREEN = "import pytest\ndef test_a(): pass\ndef test_b(): pass\ndef test_c(): pytest.skip('no')\n"
RED = "def test_a(): pass\ndef test_b(): assert False\n"
BROKEN = "import nothing_that_exists\n"
EMPTY = "\n"
ABORTED = "import os\ndef test_a(): os.abort()\n"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    def run(*contents: str) -> tuple[int, str, str]:
        """Exit status, output and its last line."""
        paths = {f"part{number}": tmp_path / f"test_part{number}.py" for number in range(len(contents))}
        for path, content in zip(paths.values(), contents, strict=True):
            path.write_text(content)
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
    assert "ended without a summary (exit status -6)" in at_the_end
    assert "Fatal Python error: Aborted" in at_the_end
