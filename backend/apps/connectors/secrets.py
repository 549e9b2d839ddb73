"""Secrets at rest: encrypted by the manager, stored apart from the configuration.

Layout of a sealed secret: ``HR1`` | length of key id (1 byte) | key id | IV (16 bytes) |
ciphertext (AES-256-CTR) | HMAC-SHA256 over all before it (encrypt-then-MAC).
"""

import json
import os
import secrets as random
from functools import lru_cache
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from django.conf import settings

_MAGIC = b"HR1"
_IV_BYTES = 16
_TAG_BYTES = 32
_KEY_BYTES = 32


class UnreadableSecretError(Exception):
    """A stored secret that was tampered with, or whose key is not in the keys file."""


class SecretCipher:
    """Seals with the current key, and opens with any known key.

    ``keys`` maps a key id to 64 bytes: 32 to encrypt, 32 to authenticate.
    """

    def __init__(self, keys: dict[str, bytes], current: str) -> None:
        self._keys = keys
        self._current = current

    def is_current(self, sealed: bytes) -> bool:
        """Whether it was sealed with the current key."""
        return sealed.startswith(_MAGIC + bytes([len(self._current)]) + self._current.encode())

    def seal(self, plain: bytes) -> bytes:
        encryption_key, mac_key = self._pair(self._current)
        iv = os.urandom(_IV_BYTES)
        key_id = self._current.encode()
        encryptor = Cipher(algorithms.AES(encryption_key), modes.CTR(iv)).encryptor()
        sealed = _MAGIC + bytes([len(key_id)]) + key_id + iv + encryptor.update(plain) + encryptor.finalize()
        return sealed + _mac(mac_key, sealed).finalize()

    def open(self, sealed: bytes) -> bytes:
        """Raises UnreadableSecretError, which names the reason but no secret."""
        if sealed[:3] != _MAGIC or len(sealed) < len(_MAGIC) + 1 + _IV_BYTES + _TAG_BYTES:
            raise UnreadableSecretError("The stored secret is not in a known format.")
        start = 4 + sealed[3]
        key_id = sealed[4:start].decode(errors="replace")
        if key_id not in self._keys:
            raise UnreadableSecretError(f"The stored secret was encrypted with the key {key_id!r}, which is not here.")
        encryption_key, mac_key = self._pair(key_id)
        content, tag = sealed[:-_TAG_BYTES], sealed[-_TAG_BYTES:]
        try:
            _mac(mac_key, content).verify(tag)
        except InvalidSignature:
            raise UnreadableSecretError("The stored secret was changed since it was saved.") from None
        iv, ciphertext = content[start : start + _IV_BYTES], content[start + _IV_BYTES :]
        decryptor = Cipher(algorithms.AES(encryption_key), modes.CTR(iv)).decryptor()
        return decryptor.update(ciphertext) + decryptor.finalize()

    def _pair(self, key_id: str) -> tuple[bytes, bytes]:
        key = self._keys[key_id]
        return key[:_KEY_BYTES], key[_KEY_BYTES:]


def _mac(key: bytes, data: bytes) -> hmac.HMAC:
    mac = hmac.HMAC(key, hashes.SHA256())
    mac.update(data)
    return mac


def create_keys_file(path: Path) -> None:
    """Writes a new file with one new key, readable only by its owner."""
    content = {"current": "k1", "keys": {"k1": random.token_bytes(2 * _KEY_BYTES).hex()}}
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(content, file)


def add_key(path: Path) -> str:
    """Adds a new key, makes it the current one and returns its id. The file is replaced atomically."""
    content = json.loads(path.read_text())
    numbers = [int(key_id[1:]) for key_id in content["keys"] if key_id[1:].isdigit()]
    content["current"] = f"k{max(numbers, default=0) + 1}"
    content["keys"][content["current"]] = random.token_bytes(2 * _KEY_BYTES).hex()
    replacement = path.with_suffix(".new")
    with open(os.open(replacement, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(content, file)
    replacement.replace(path)
    return str(content["current"])


def cipher() -> SecretCipher:
    """The installation's cipher, from its keys file. A changed file is read again, so that a key can be
    added without a restart."""
    path = Path(settings.CONSOLE.secret_keys_file)
    return _read(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=1)
def _read(path: Path, _changed: int) -> SecretCipher:
    content = json.loads(path.read_text())
    keys = {key_id: bytes.fromhex(key) for key_id, key in content["keys"].items()}
    return SecretCipher(keys, content["current"])
