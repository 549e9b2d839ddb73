"""Standard Webhooks signatures, version 1 (symmetric)."""

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Iterable

ID_HEADER = "webhook-id"
TIMESTAMP_HEADER = "webhook-timestamp"
SIGNATURE_HEADER = "webhook-signature"

TOLERANCE_SECONDS = 300
"""A timestamp further from now than this is refused."""

_PREFIX = "whsec_"


def key_of(secret: str) -> bytes:
    """The key in a secret such as ``whsec_MfKQ…``. Raises ValueError, which does not repeat the secret."""
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("A signing secret is base64, with or without 'whsec_' before it.") from None
    if not 16 <= len(key) <= 128:
        raise ValueError("A signing secret holds 16 to 128 bytes, best 32.")
    return key


def sign(keys: Iterable[bytes], message_id: str, timestamp: int, body: bytes) -> str:
    """The signature header: one signature for each active key."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    return " ".join("v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode() for key in keys)


def is_valid(keys: Iterable[bytes], message_id: str, timestamp: str, signature: str, body: bytes) -> bool:
    """Whether one of the signatures was made with one of the keys, not long ago."""
    if not timestamp.isdigit() or abs(time.time() - int(timestamp)) > TOLERANCE_SECONDS:
        return False
    given = signature.split()
    expected = sign(keys, message_id, int(timestamp), body).split()
    return any(hmac.compare_digest(one.encode(), other.encode()) for one in given for other in expected)
