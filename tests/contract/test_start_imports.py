"""A process imports only what it uses: imports are most of its start, and of its memory."""

import json
import os
import subprocess
import sys

import pytest

from backend.settings import ROOT
from tests.processes import PROCESSES

NOWHERE = {"pyspark", "prompt_toolkit", "hvac", "django_stubs_ext", "cel", "lark"}
"""Spark's package is for its jobs; the others are for a command line, a Vault, a type checker, an expression and a
statement."""
ELSEWHERE = {
    "celery": {"worker"},
    "drf_spectacular.openapi": {"console"},
    "backend.apps.audit.admin_bases": {"console"},
    "django": PROCESSES.keys() - {"ingest"},
}
"""By module, the processes that need it."""


@pytest.mark.parametrize("process", PROCESSES)
def test_a_process_imports_only_what_it_uses(process: str) -> None:
    script = f"{PROCESSES[process]}\nimport json, sys; print(json.dumps(list(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT, env=os.environ
    )
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    forbidden = NOWHERE | {module for module, needed_by in ELSEWHERE.items() if process not in needed_by}
    assert loaded & forbidden == set()
    needed = {module for module, needed_by in ELSEWHERE.items() if process in needed_by}
    assert needed - loaded == set()


def test_the_library_of_expressions_comes_without_its_command_line() -> None:
    script = """
import sys
from backend.domain.transforms.expression import Expression
assert "cel" not in sys.modules
Expression(type="expression", expression="message.a > 1").compile()
assert "cel" in sys.modules and "prompt_toolkit" not in sys.modules
import cel.cli  # is no stand-in
assert cel.cli.main
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
