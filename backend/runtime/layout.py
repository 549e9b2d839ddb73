"""The folders and ports of the embedded installation."""

import json
import os
import secrets
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from backend.settings import EmbeddedSettings

_SOCKET_PATH_LIMIT = 100
"""The path of a Unix socket may have about 107 bytes."""

PORTS = {
    "console": 8000,
    "ingest": 8080,
    "manager": 8090,
    "gateway": 9292,
    "gateway_http": 8081,
    "kafka": 9092,
    "kafka_controller": 9093,
    "postgresql": 8032,
    "redis": 8079,
}


def var_folder() -> Path:
    """``HEADRACE_VAR``, or ``var`` in the project."""
    return EmbeddedSettings().var.resolve()


@dataclass(frozen=True)
class Layout:
    """Folders and ports of one installation."""

    var: Path
    port_offset: int = 0

    def port(self, name: str) -> int:
        return PORTS[name] + self.port_offset

    @property
    def run(self) -> Path:
        return self.var / "run"

    @property
    def log(self) -> Path:
        return self.var / "log"

    @property
    def secrets(self) -> Path:
        return self.var / "secrets"

    @property
    def jars(self) -> Path:
        return self.var / "jars"

    @property
    def environment_file(self) -> Path:
        return self.run / "environment.json"

    @property
    def supervisor_socket(self) -> Path:
        path = self.run / "supervisor.sock"
        if len(str(path)) <= _SOCKET_PATH_LIMIT:
            return path
        return Path(tempfile.gettempdir()) / f"headrace-{sha256(str(self.var).encode()).hexdigest()[:12]}.sock"

    def create(self) -> None:
        for folder in (self.run, self.log):
            folder.mkdir(parents=True, exist_ok=True)
        self.secrets.mkdir(mode=0o700, exist_ok=True)

    def secret(self, name: str) -> str:
        """A random secret of this installation, created on first use in a file that only its owner can read."""
        path = self.secrets / name
        if not path.exists():
            write_private(path, secrets.token_urlsafe(32))
        return path.read_text().strip()


def write_private(path: Path, text: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)


def load_environment() -> None:
    """Sets the environment of the running embedded installation, so that every ``manage.py`` command reaches it.

    Variables that are already set take precedence.
    """
    path = Layout(var_folder()).environment_file
    if path.exists():
        for name, value in json.loads(path.read_text()).items():
            os.environ.setdefault(name, value)
