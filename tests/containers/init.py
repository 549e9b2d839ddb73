"""The first process of a container: ``unshare … python -m tests.containers.init SPECIFICATION``.

Builds the root file system, enters it, and runs the command as the container's user. It passes SIGTERM on and reaps
orphans, as Docker's init does.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def _bind(source: str, target: Path, *, read_only: bool) -> None:
    target.mkdir(parents=True, exist_ok=True)
    _mount("--bind", source, str(target))
    if read_only:
        _mount("-o", "remount,bind,ro", str(target))


def _enter_root(container: dict[str, Any]) -> None:
    """Makes an overlay of the machine's files the root. What is written there is lost with the container."""
    work = container["scratch"]
    _mount("-t", "tmpfs", "tmpfs", work)
    layers = [Path(work) / name for name in ("upper", "work", "root")]
    for layer in layers:
        layer.mkdir()
    upper, workdir, root = layers
    _mount("-t", "overlay", "overlay", "-o", f"lowerdir=/,upperdir={upper},workdir={workdir}", str(root))
    for path in container["traversed"]:  # the image's user may enter what may belong to root here
        for parent in Path(path).parents:
            inside = root / parent.relative_to("/")
            inside.chmod(inside.stat().st_mode | 0o005)
    for target, content in container["files"].items():
        (root / target.lstrip("/")).unlink(missing_ok=True)
        (root / target.lstrip("/")).write_text(content)
    for mount in container["mounts"]:
        _bind(mount["source"], root / mount["target"].lstrip("/"), read_only=mount["read_only"])
    _mount("-t", "proc", "proc", str(root / "proc"))
    _mount("--rbind", "/dev", str(root / "dev"))
    for path in container["tmpfs"]:
        _mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", str(root / path.lstrip("/")))
    for path in container["programs"]:  # which may lie below a folder that is another one in the container
        if any(Path(path).is_relative_to(folder) for folder in container["tmpfs"]):
            _bind(path, root / path.lstrip("/"), read_only=True)
    if container["read_only"]:
        _mount("-o", "remount,ro", str(root))
    os.chroot(root)
    os.chdir(container["workdir"])


def _run(container: dict[str, Any]) -> int:
    """Returns the command's exit status."""
    command = os.fork()
    if command == 0:
        os.setsid()
        os.setgroups([])
        os.setgid(container["gid"])
        os.setuid(container["uid"])
        os.environ.clear()
        os.environ.update(container["environment"])
        os.execvp(container["command"][0], container["command"])
    signal.signal(signal.SIGTERM, lambda *_: os.kill(command, signal.SIGTERM))
    while True:
        ended, status = os.wait()
        if ended == command:
            return os.waitstatus_to_exitcode(status)


def main() -> int:
    container = json.loads(Path(sys.argv[1]).read_text())
    socket.sethostname(container["hostname"])
    _enter_root(container)
    return _run(container)


if __name__ == "__main__":
    sys.exit(main())
