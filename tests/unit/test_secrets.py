import os

import pytest

from backend.apps.connectors.secrets import SecretCipher, UnreadableSecretError

KEYS = {"k1": os.urandom(64), "k2": os.urandom(64)}


def test_round_trip_and_fresh_iv() -> None:
    cipher = SecretCipher(KEYS, "k1")
    first, second = cipher.seal(b"p-secret"), cipher.seal(b"p-secret")
    assert cipher.open(first) == cipher.open(second) == b"p-secret"
    assert first != second
    assert b"p-secret" not in first


def test_an_older_key_still_opens() -> None:
    assert SecretCipher(KEYS, "k2").open(SecretCipher(KEYS, "k1").seal(b"x")) == b"x"


def test_every_changed_byte_is_noticed() -> None:
    cipher = SecretCipher(KEYS, "k1")
    sealed = cipher.seal(b"p-secret")
    for index in range(len(sealed)):
        changed = sealed[:index] + bytes([sealed[index] ^ 1]) + sealed[index + 1 :]
        with pytest.raises(UnreadableSecretError):
            cipher.open(changed)


@pytest.mark.parametrize("sealed", [b"", b"HR1", b"junk" * 30])
def test_junk_is_refused(sealed: bytes) -> None:
    with pytest.raises(UnreadableSecretError):
        SecretCipher(KEYS, "k1").open(sealed)


def test_an_unknown_key_is_named() -> None:
    with pytest.raises(UnreadableSecretError, match="k2"):
        SecretCipher({"k1": KEYS["k1"]}, "k1").open(SecretCipher(KEYS, "k2").seal(b"x"))
