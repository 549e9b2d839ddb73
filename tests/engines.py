"""Engines that read files and tables, each in a process of its own, which is given a program and its arguments."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from backend.runtime.java import java_home
from backend.runtime.layout import Layout
from tests.distributions import distribution_files
from tests.wheel_programs import program_of


def duckdb_output(program: str, *arguments: str) -> str:
    """The program's first argument is the folder of DuckDB's package."""
    package = Path(program_of("duckdb", "DUCKDB_VERSION", "duckdb/__init__.py")).parent.parent
    return _output([program, str(package), *arguments])


def spark_output(program: str, layout: Layout, name: str, ivy: str, *arguments: str) -> str:
    """The program's first argument are the jars of the distribution that ``name`` and ``ivy`` stand for."""
    home = java_home(layout)
    jars = distribution_files(name, ivy, layout, home)
    return _output([program, ",".join(map(str, jars)), *arguments], JAVA_HOME=str(home))


def _output(program: Sequence[str], **environment: str) -> str:
    command = [sys.executable, "-c", *program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)
    assert done.returncode == 0, done.stderr
    return done.stdout
