"""Which processes belong to an installation."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from backend.runtime.installation import own_processes
from backend.runtime.layout import Layout


@pytest.mark.parametrize(
    ("environment", "is_own"), [({"HEADRACE_EMBEDDED": "true"}, True), ({}, False)], ids=["its own", "a user's shell"]
)
def test_a_process_is_told_by_the_environment_it_was_started_with(
    tmp_path: Path, environment: dict[str, str], is_own: bool
) -> None:
    others = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        env=others | {"HEADRACE_VAR": str(tmp_path)} | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = [one.pid for one in own_processes(Layout(tmp_path))]
        process.kill()
    assert found == ([process.pid] if is_own else [])
