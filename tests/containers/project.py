"""Starts and stops the services of a compose file."""

import ctypes
import fcntl
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO

import psutil

from backend.runtime import servers
from backend.runtime.layout import Layout
from backend.settings import ROOT
from tests.containers.compose import Service, services
from tests.containers.images import HEADRACE, image_of
from tests.waiting import wait_until

_CLONE_NEWNET = 0x40000000
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1

_START_SECONDS = 300.0
_STOP_SECONDS = {"worker": 110.0}


@contextmanager
def own_network() -> Iterator[None]:
    """The calling thread, and what it starts, have a network of their own: nothing but its loopback interface. So every
    port is free, and nothing outside is reached."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net") as outside:
        if libc.unshare(_CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "A network of its own needs root.")
        try:
            with socket.socket() as any_socket:
                fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
            yield
        finally:
            libc.setns(outside.fileno(), _CLONE_NEWNET)


class Container:
    """One service that was started."""

    def __init__(self, service: Service, process: subprocess.Popen[bytes], log: Path) -> None:
        self.service = service
        self.process = process
        self.log = log
        self.stopped = False

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def processes(self) -> list[psutil.Process]:
        """All of the container, the first one first."""
        return psutil.Process(self.process.pid).children(recursive=True) if self.is_running else []

    def stop(self, seconds: float) -> bool:
        """Whether it ended by itself after SIGTERM; otherwise it is killed."""
        self.stopped = True
        if running := self.processes():
            running[0].send_signal(signal.SIGTERM)
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()  # and with it its container
            self.process.wait(10)
            return False
        return True


class Project:
    """``docker compose up`` and ``down``, in a folder that holds the compose file, its volumes and logs."""

    def __init__(self, folder: Path, layout: Layout, profiles: set[str], variables: dict[str, str]) -> None:
        self._folder = folder
        self._layout = layout
        self.services = services(folder / "compose.yaml", variables, profiles)
        self._tools = services(folder / "compose.yaml", variables, {"backup"})
        self.containers: dict[str, Container] = {}
        self._down = threading.Event()
        self._keeper: threading.Thread | None = None
        self.addresses = {name: f"127.0.0.{number}" for number, name in enumerate(self.services, 2)}
        """One for each service, so that a server that listens on another than it should is not reached."""

    def up(self) -> None:
        """Starts every service that does not run when what it waits for is so, and returns once all are healthy."""
        if self._keeper is None:
            self._keeper = threading.Thread(target=self._keep, daemon=True)
            self._keeper.start()
        for service in self.services.values():
            for other, condition in service.waits_for.items():
                self._wait(other, condition)
            if service.name not in self.containers or not self.containers[service.name].is_running:
                self.containers[service.name] = self._start(service)
        for service in self.services.values():
            self._wait(service.name, "service_healthy" if service.health else "service_started")

    def down(self) -> None:
        self._down.set()
        self.stop()

    def stop(self, *names: str) -> None:
        """All services, unless some are named."""
        for name, container in reversed(self.containers.items()):
            if not names or name in names:
                container.stop(_STOP_SECONDS.get(name, 20))

    def remove_volumes(self) -> None:
        shutil.rmtree(self._folder / "volumes")

    def run(self, name: str, arguments: list[str], stdin: IO[bytes], stdout: IO[bytes]) -> None:
        """Runs a container of its own, with these arguments as its command, to its end."""
        service = replace({**self._tools, **self.services}[name], name=f"{name}-run", command=arguments)
        container = self._start(service, stdin=stdin, stdout=stdout)
        assert container.process.wait(120) == 0, container.log.read_text()

    def execute(self, name: str, command: list[str], stdin: IO[bytes], stdout: IO[bytes]) -> None:
        """Runs a command in the service's container."""
        image, [first, *_] = image_of(self.services[name].image, self._layout), self.containers[name].processes()
        enter = ["nsenter", f"--target={first.pid}", "--mount", "--uts", "--pid", "--root", "--wd"]
        user = ["setpriv", f"--reuid={image.run_as}", f"--regid={image.run_as}", "--clear-groups"]
        variables = [f"{key}={value}" for key, value in (image.environment | self.services[name].environment).items()]
        whole = [*enter, *user, "env", "--ignore-environment", *variables, *command]
        ended = subprocess.run(whole, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, timeout=120, check=False)
        assert ended.returncode == 0, ended.stderr.decode()

    def restart(self, name: str) -> None:
        """A new container with the same volumes."""
        self.containers[name] = self._start(self.services[name])
        if self.services[name].health:
            self._wait(name, "service_healthy")

    def scale(self, name: str, command: list[str]) -> str:
        """Starts a second container of the service, which has another command, since all share one network; returns its
        name."""
        another = f"{name}-2"
        self.services[another] = replace(self.services[name], name=another, command=command, health=[])
        self.containers[another] = self._start(self.services[another])
        return another

    def volume(self, name: str) -> Path:
        return self._folder / "volumes" / name

    def _keep(self) -> None:
        """Starts what ended again, as the restart policies say."""
        while not self._down.wait(0.5):
            for container in list(self.containers.values()):
                status = container.process.poll()
                policy = container.service.restart
                ended = status is not None and (policy == "unless-stopped" or (policy == "on-failure" and status != 0))
                if ended and not container.stopped:
                    self.containers[container.service.name] = self._start(container.service)

    def _wait(self, name: str, condition: str) -> None:
        match condition:
            case "service_completed_successfully":
                wait_until(lambda: self.containers[name].process.poll() == 0, _START_SECONDS)
            case "service_healthy":
                wait_until(lambda: self._is_healthy(self.containers[name]), _START_SECONDS, 1)

    def _is_healthy(self, container: Container) -> bool:
        assert container.service.health[0] == "CMD"
        command = container.service.health[1:]
        if command[0] == "valkey-cli":  # the wheel has the server only
            command = [sys.executable, "-c", "import redis; redis.Redis().ping()"]
        path = f"{Path(sys.executable).parent}:{servers.postgresql_programs()}:{os.environ['PATH']}"
        environment = {"PATH": path}
        return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, check=False).returncode == 0

    def _start(self, service: Service, *, stdin: IO[bytes] | None = None, stdout: IO[bytes] | None = None) -> Container:
        image = image_of(service.image, self._layout)
        mounts = []
        for mount in service.mounts:
            source = self.volume(mount.source)
            if not source.exists():  # a new volume has the owner of the image's folder
                source.mkdir(parents=True)
                shutil.chown(source, image.owner)
            mounts.append({"source": str(source), "target": mount.target, "read_only": mount.read_only})
        mounts.append({"source": str(ROOT), "target": str(HEADRACE), "read_only": True})
        scratch = self._folder / "scratch" / service.name
        scratch.mkdir(parents=True, exist_ok=True)
        hosts = {"localhost": "127.0.0.1"} | self.addresses
        specification = {
            "hostname": service.name,
            "scratch": str(scratch),
            "traversed": [os.path.realpath(sys.executable), str(ROOT / "x"), str(self._layout.jars.resolve() / "x")],
            "programs": [str(ROOT)],
            "files": {"/etc/hosts": "".join(f"{address} {host}\n" for host, address in hosts.items())},
            "mounts": mounts,
            "tmpfs": sorted({*service.tmpfs, "/tmp"} if not service.read_only else service.tmpfs),
            "read_only": service.read_only,
            "workdir": image.workdir,
            "uid": image.run_as,
            "gid": image.run_as,
            "environment": image.environment | service.environment,
            "command": [*service.entrypoint, *service.command] if service.entrypoint else image.entry_point(service),
        }
        file = scratch.with_suffix(".json")
        file.write_text(json.dumps(specification))
        log = self._folder / f"{service.name}.log"
        namespaces = ["unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child=KILL"]
        with log.open("ab") as output:
            process = subprocess.Popen(
                [*namespaces, sys.executable, "-m", "tests.containers.init", str(file)],
                cwd=ROOT,
                stdin=stdin or subprocess.DEVNULL,
                stdout=stdout or output,
                stderr=output,
                env={"PATH": os.environ["PATH"]},
            )
        return Container(service, process, log)


def published_address(service: Service) -> str:
    """Where the machine reaches the service: the first port that it publishes."""
    return f"http://127.0.0.1:{next(iter(service.published.values()))}"
