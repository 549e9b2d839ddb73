"""OpenSSH's server for tests, from Debian's package openssh-server, which the user of the tests logs in to."""

import getpass
import os
from pathlib import Path
from tempfile import mkdtemp

import asyncssh

from backend.runtime.health import is_listening
from tests.infra import VAR, Server
from tests.ports import free_ports

[PORT] = free_ports(1)
FOLDER = Path(mkdtemp(prefix="openssh-", dir=VAR))
USER = getpass.getuser()
HOST_KEY, USER_KEY = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))

_PRIVILEGE_SEPARATION = Path("/run/sshd")
_CONFIG = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/authorized
PidFile none
StrictModes no
UsePAM no
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
MaxStartups 100
Subsystem sftp internal-sftp
"""


def openssh_server() -> Server:
    """Not yet started. Connections outlive the process, as it leaves each to one of its own."""
    write_private(HOST_KEY, FOLDER / "host")
    (FOLDER / "authorized").write_bytes(USER_KEY.export_public_key())
    (FOLDER / "config").write_text(_CONFIG.format(port=PORT, folder=FOLDER))
    if os.geteuid() == 0:
        _PRIVILEGE_SEPARATION.mkdir(mode=0o755, exist_ok=True)
    command = ["/usr/sbin/sshd", "-D", "-e", "-f", str(FOLDER / "config")]
    return Server("openssh", command, lambda: is_listening(f"127.0.0.1:{PORT}"))


def write_private(key: asyncssh.SSHKey, path: Path) -> None:
    """As OpenSSH's programs want it."""
    path.touch(mode=0o600)
    key.write_private_key(path)


def authorize(key: asyncssh.SSHKey, options: str) -> None:
    """From now on the user may log in with that key, and do what the options of its line allow."""
    with (FOLDER / "authorized").open("a") as lines:
        lines.write(f"{options} {key.export_public_key().decode()}")
