"""The tests' server of Delta Sharing, and the tables that it shares."""

import json
import sys
from pathlib import Path
from typing import Any

from backend.runtime.health import is_listening
from backend.settings import ROOT
from tests.infra import VAR, Server
from tests.ports import free_ports

[PORT] = free_ports(1)
TOKEN = "planted-bearer-token-of-the-share"
FOLDER = VAR / "delta-sharing"


def sharing_server() -> Server:
    """Not yet started."""
    FOLDER.mkdir(exist_ok=True)
    command = [sys.executable, str(ROOT / "tests/delta_sharing_server.py"), str(PORT), TOKEN, str(FOLDER)]
    return Server("delta-sharing", command, lambda: is_listening(f"127.0.0.1:{PORT}"))


def profile(port: int = PORT, token: str = TOKEN) -> dict[str, Any]:
    """A connection of the connector."""
    endpoint = f"http://127.0.0.1:{port}/delta-sharing/"
    file = {"shareCredentialsVersion": 1, "endpoint": endpoint, "bearerToken": token}
    return {"profile": {"file": json.dumps(file)}}


def table_folder(table: str) -> Path:
    """Of a table of the schema ``default`` in the share ``tests``."""
    return FOLDER / "tests/default" / table
