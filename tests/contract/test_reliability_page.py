"""Each guarantee names tests that exist."""

import ast
import re

import pytest

from backend.settings import ROOT

PAGE = ROOT / "docs/reference/reliability.md"
ROWS = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and not line.startswith("| guarantee ")]


NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def _functions_of(path: str) -> set[str]:
    file = ROOT / path
    if not file.is_file():
        return set()
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    return {node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, functions)}


# As in sources.py, the tests are parsed before the first one runs.
FUNCTIONS = {path: _functions_of(path) for row in ROWS for path, _ in NAMED.findall(row)}


def test_there_are_guarantees() -> None:
    assert len(ROWS) >= 20


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split(" | ")[0][2:50])
def test_its_tests_exist(row: str) -> None:
    named = NAMED.findall(row)
    assert named, "It needs a test: `tests/…/test_x.py::test_name`"
    assert len(named) == row.count("`") // 2
    missing = [f"{path}::{name}" for path, name in named if name not in FUNCTIONS[path]]
    assert not missing
