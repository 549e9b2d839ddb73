"""Configures and controls supervisord, which runs the processes.

supervisord restarts processes that end, keeps their logs, and is controlled by XML-RPC over a Unix socket.
"""

import configparser
import os
import shlex
import subprocess
import sys
import xmlrpc.client
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import psutil
from supervisor.xmlrpc import SupervisorTransport

from backend.runtime.layout import Layout
from backend.runtime.stack import Process
from backend.runtime.starting import LIMIT_SECONDS, Start, wait_for_starts
from backend.settings import ROOT

_LOG_BYTES = "20MB"
_STARTED = ("STARTING", "RUNNING")
"""The states of a process that has been started and has not ended."""


class Supervisor:
    """The supervisord of one installation, whether it is running or not."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    @property
    def _config_file(self) -> Path:
        return self._layout.run / "supervisord.conf"

    @property
    def _api(self) -> Any:
        transport = SupervisorTransport(None, None, f"unix://{self._layout.supervisor_socket}")
        return xmlrpc.client.ServerProxy("http://127.0.0.1", transport=transport).supervisor

    def is_running(self) -> bool:
        try:
            self._api.getPID()
        except (OSError, xmlrpc.client.Error):
            return False
        return True

    def start(self, processes: list[Process], environment: dict[str, str]) -> None:
        """Starts supervisord with every process configured but none started. Raises CannotStartError."""
        config = self._config_file
        config.write_text("")
        config.chmod(0o600)
        with config.open("w") as file:
            self._config(processes).write(file)
        supervisord = subprocess.run(
            [sys.executable, "-m", "supervisor.supervisord", "-c", str(config)],
            env=os.environ | environment | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        start = Start(
            "supervisord",
            self.is_running,
            lambda: supervisord.returncode != 0 or not self._is_alive(),
            self._layout.log / "supervisord.log",
        )
        wait_for_starts([start], required=[start.name])

    def _process(self) -> psutil.Process | None:
        """None if it does not run. A killed one leaves its file, whose number may be another's process by then."""
        try:
            process = psutil.Process(int((self._layout.run / "supervisord.pid").read_text()))
            return process if str(self._config_file) in process.cmdline() else None
        except (OSError, ValueError, psutil.Error):
            return None

    def _is_alive(self) -> bool:
        """Whether the daemon's process exists, unless it has not written its number yet."""
        try:
            return psutil.pid_exists(int((self._layout.run / "supervisord.pid").read_text()))
        except (OSError, ValueError):
            return True

    def start_processes(self, processes: list[Process]) -> None:
        """Starts the processes together without waiting until they are ready."""
        for process in processes:
            self.start_process(process.name)

    def wait_until_ready(
        self,
        processes: list[Process],
        *,
        required: Collection[str] = (),
        failed: bool = False,
        limit: float = LIMIT_SECONDS,
    ) -> dict[str, str]:
        """Waits for the processes that were started, as ``wait_for_starts`` does. Those that are not ready go on being
        started. Raises CannotStartError.
        """
        starts = [
            Start(process.name, process.ready, self.ended_since_now(process.name), self.log_file(process.name))
            for process in processes
        ]
        return wait_for_starts(starts, required=required, failed=failed, limit=limit)

    def ended_since_now(self, name: str) -> Callable[[], bool]:
        """Returns a function that says whether the process of this name has ended since, even if it runs anew."""
        pid = self._api.getProcessInfo(name)["pid"]

        def ended() -> bool:
            info = self._api.getProcessInfo(name)
            return info["statename"] not in _STARTED or info["pid"] != pid

        return ended

    def start_process(self, name: str) -> None:
        """Starts a process without waiting until it is ready."""
        self._api.startProcess(name, False)

    def stop_process(self, name: str) -> None:
        try:
            self._api.stopProcess(name)
        except xmlrpc.client.Fault as fault:
            if "NOT_RUNNING" not in fault.faultString and "BAD_NAME" not in fault.faultString:
                raise

    def state(self, name: str) -> str:
        return str(self._api.getProcessInfo(name)["statename"])

    def processes(self) -> list[dict[str, Any]]:
        """The name, state, pid and start time (Unix time) of each process."""
        return [
            {"name": info["name"], "state": info["statename"], "pid": info["pid"], "since": info["start"]}
            for info in self._api.getAllProcessInfo()
        ]

    def shutdown(self) -> None:
        """Tells supervisord to end, which it does once all processes have."""
        self._api.shutdown()

    def wait_until_ended(self) -> None:
        """Waits while supervisord's process exists, which no longer answers when it ends."""
        if process := self._process():
            process.wait()

    def log_file(self, name: str) -> Path:
        return self._layout.log / f"{name}.log"

    def _config(self, processes: list[Process]) -> configparser.RawConfigParser:
        config = configparser.RawConfigParser()
        run, log = self._layout.run, self._layout.log
        config["unix_http_server"] = {"file": str(self._layout.supervisor_socket), "chmod": "0700"}
        config["rpcinterface:supervisor"] = {
            "supervisor.rpcinterface_factory": "supervisor.rpcinterface:make_main_rpcinterface"
        }
        config["supervisord"] = {
            "logfile": str(log / "supervisord.log"),
            "logfile_maxbytes": _LOG_BYTES,
            "pidfile": str(run / "supervisord.pid"),
            "childlogdir": str(log),
            "identifier": "headrace",
            "silent": "true",
        }
        if os.geteuid() == 0:
            config["supervisord"]["user"] = "root"
        for process in processes:
            section = {
                "command": shlex.join(process.command).replace("%", "%%"),
                "directory": str(ROOT),
                "autostart": "false",
                "autorestart": "true",
                "startsecs": "1",
                "startretries": "1000000",
                "stopsignal": process.stop_signal,
                "stopwaitsecs": str(process.stop_seconds),
                "killasgroup": "true",
                "redirect_stderr": "true",
                "stdout_logfile": str(self.log_file(process.name)),
                "stdout_logfile_maxbytes": _LOG_BYTES,
                "stdout_logfile_backups": "1",
            }
            if process.user is not None:
                section |= {"user": process.user, "directory": "/"}
            config[f"program:{process.name}"] = section
        return config
