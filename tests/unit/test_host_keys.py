"""The host key by which an SSH server is known, as it is entered."""

from typing import Any

import asyncssh
import pytest
from pydantic import TypeAdapter, ValidationError

from backend.connectors.parts.ssh import HostKey

ADAPTER: TypeAdapter[Any] = TypeAdapter(HostKey)


def key_of(algorithm: str) -> str:
    key: bytes = asyncssh.generate_private_key(algorithm).export_public_key()
    return key.decode().strip()


@pytest.mark.parametrize("algorithm", ["ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256"])
@pytest.mark.parametrize("host", ["", "127.0.0.1 ", "[127.0.0.1]:2222 ", "|1|0+ZpgHGMgTQWoiJqcjFcQtR6pIk=|cQ= "])
def test_a_line_of_ssh_keyscan_is_a_key(algorithm: str, host: str) -> None:
    key = key_of(algorithm)
    assert ADAPTER.validate_python(f" {host}{key}\n") == key


@pytest.mark.parametrize(
    "text", ["nonsense", "ssh-ed25519", "ssh-ed25519 AAAA", "ssh-rsa key", "127.0.0.1", " ", "SHA256:abc", "é é é"]
)
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="Enter one key that ssh-keyscan prints"):
        ADAPTER.validate_python(text)


def test_two_keys_are_refused() -> None:
    with pytest.raises(ValidationError, match="Enter one key"):
        ADAPTER.validate_python(f"{key_of('ssh-ed25519')}\n127.0.0.1 {key_of('ssh-rsa')}")
