"""Connections to SSH servers, which are known by their host keys."""

import logging
from typing import Annotated, Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from backend.connectors.parts.connection_text import connection_text
from backend.connectors.parts.tls import wrapped_pem
from backend.domain.reasons import Reason

_LOGIN_SECONDS = 10
_KEY_TYPES = ("ssh-", "ecdsa-", "sk-")
"""With which the names of host keys begin (RFC 4253, 6.6; RFC 5656)."""

PrivateKey = Annotated[
    SecretStr,
    BeforeValidator(wrapped_pem),
    Field(min_length=1, description="Private key in OpenSSH or PEM format, without a passphrase."),
]


def _host_key(text: str) -> str:
    """The key of a line that ssh-keyscan prints, without its host. Raises ValueError."""
    line = text.strip()
    key = line if line.startswith(_KEY_TYPES) else line.partition(" ")[2].lstrip()
    try:
        if not key.startswith(_KEY_TYPES) or "\n" in key:
            raise ValueError
        load_ssh_public_key(key.encode())
    except UnsupportedAlgorithm:  # the library that connects may know it
        pass
    except ValueError:
        raise ValueError("Enter one key that ssh-keyscan prints, such as “ssh-ed25519 AAAA…”.") from None
    return key


HostKey = Annotated[
    str,
    AfterValidator(_host_key),
    Field(
        min_length=1,
        description="Public key of the SSH server, by which it is known, as ssh-keyscan prints it.",
        examples=["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"],
    ),
]


class SshError(Exception):
    """No connection. ``login`` tells whether user, key or password are to blame, ``known`` whether the server has the
    host key that is configured."""

    def __init__(self, reason: Reason, message: str, *, login: bool = False, known: bool = True) -> None:
        super().__init__(message)
        self.reason = reason
        self.login = login
        self.known = known


async def connected(
    address: str, port: int, *, host: str, user: str, host_key: str, login: SecretStr, is_password: bool = False
) -> Any:
    """A connection to that address, which was checked; ``host`` is how it is called in errors. ``login`` is a private
    key, or a password. Raises SshError."""
    import asyncssh

    asyncssh.set_log_level(logging.WARNING)  # it would log several lines for each connection
    secret = login.get_secret_value()
    try:
        known = asyncssh.import_known_hosts(f"* {host_key}\n")
        keys = [] if is_password else [asyncssh.import_private_key(secret)]
    except (ValueError, asyncssh.KeyImportError):
        text = "The private key or the host key is not a key that can be read."
        raise SshError(Reason.CONFIGURATION, text, login=not is_password, known=False) from None
    try:
        return await asyncssh.connect(
            address,
            port,
            username=user,
            client_keys=keys,
            password=secret if is_password else None,
            known_hosts=known,
            config=None,
            agent_path=None,
            login_timeout=_LOGIN_SECONDS,
            keepalive_interval=15,
        )
    except asyncssh.HostKeyNotVerifiable:
        text = f"The SSH server {host} has another host key than the one that is configured."
        raise SshError(Reason.TLS, text, known=False) from None
    except asyncssh.PermissionDenied:
        text = (
            f"The SSH server {host} rejects the user {user} with this {'password' if is_password else 'private key'}."
        )
        raise SshError(Reason.CONFIGURATION, text, login=True) from None
    except (OSError, asyncssh.Error) as error:
        raise SshError(Reason.CONNECTION, f"No SSH connection to {host}:{port}: {connection_text(error)}.") from None
