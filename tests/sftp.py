"""The tests' SFTP server, in a process of its own, and its keys."""

import sys
import uuid
from pathlib import Path
from typing import Any

import asyncssh

from backend.runtime.health import is_listening
from tests import sftp_server as program
from tests.infra import VAR, Server
from tests.ports import free_ports

[PORT] = free_ports(1)
FOLDER = VAR / "sftp"
HOST_KEY, USER_KEY = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))


def sftp_server() -> Server:
    """Not yet started."""
    FOLDER.mkdir()
    HOST_KEY.write_private_key(FOLDER / "host")
    (FOLDER / "authorized").write_bytes(USER_KEY.export_public_key())
    arguments = [str(PORT), str(FOLDER), str(FOLDER / "host"), str(FOLDER / "authorized")]
    command = [sys.executable, program.__file__, *arguments]
    return Server("sftp", command, lambda: is_listening(f"127.0.0.1:{PORT}"))


def user_connection(**fields: Any) -> dict[str, Any]:
    """The connector's connection, with its own user."""
    return {
        "host": "127.0.0.1",
        "port": PORT,
        "user": f"u{uuid.uuid4().hex}",
        "access": {"type": "password", "password": program.PASSWORD},
        "host_key": HOST_KEY.export_public_key().decode().strip(),
        "folder": "/upload",
        **fields,
    }


def folder_of(connection: dict[str, Any]) -> Path:
    """Where the server keeps the folder of a connection."""
    return FOLDER / str(connection["user"]) / str(connection["folder"]).strip("/")
