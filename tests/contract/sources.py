"""The syntax trees of the back end's sources.

They are made when this module is imported, which is before the first test: ``ast.parse`` of CPython 3.11 fails now and
then beside other threads (python/cpython#106905), and tests may leave some running.
"""

import ast
from pathlib import Path

from backend.settings import ROOT

TREES = {path.relative_to(ROOT): ast.parse(path.read_text()) for path in sorted((ROOT / "backend").rglob("*.py"))}


def trees_in(folder: str) -> dict[Path, ast.Module]:
    return {path: tree for path, tree in TREES.items() if path.is_relative_to(folder)}
