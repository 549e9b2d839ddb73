"""Programs from npm, installed into ``var`` once."""

import subprocess
from pathlib import Path

from backend.runtime.node import npm_and_environment
from backend.runtime.versions import versions
from backend.settings import ROOT
from tests.exclusive import exclusive


def npm_program(package: str, version: str, script: str, *options: str) -> tuple[Path, str]:
    """The package's script, and the PATH on which Node is. ``version`` is a name in ``docker/versions.env``."""
    number = versions()[version]
    npm, environment = npm_and_environment()
    folder = ROOT / "var" / package / number
    path = folder / "node_modules" / package / script
    with exclusive("downloads"):
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            always = ["--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder)]
            subprocess.run([*npm, "install", *always, *options, f"{package}@{number}"], env=environment, check=True)
    return path, environment["PATH"]
