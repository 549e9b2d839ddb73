"""Signatures as in the Standard Webhooks specification, version 1 (symmetric)."""

import base64
import binascii
import hashlib
import hmac
import re
import time
from collections.abc import Iterable

ID_HEADER = "webhook-id"
TIMESTAMP_HEADER = "webhook-timestamp"
SIGNATURE_HEADER = "webhook-signature"

TOLERANCE_SECONDS = 300
"""A timestamp that differs from the current time by more than this is rejected."""

_PREFIX = "whsec_"
_TIMESTAMP = re.compile(r"[0-9]{1,12}")


def key_of(secret: str) -> bytes:
    """The key in a secret such as ``whsec_MfKQ…``. Raises ValueError, whose message does not contain the secret."""
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("A signing secret must be base64, with or without the prefix 'whsec_'.") from None
    if not 16 <= len(key) <= 128:
        raise ValueError("A signing secret must have 16 to 128 bytes; 32 are recommended.")
    return key


def sign(keys: Iterable[bytes], message_id: str, timestamp: int, body: bytes) -> str:
    """The value of the signature header, with one signature for each active key."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    return " ".join("v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode() for key in keys)


def is_valid(keys: Iterable[bytes], message_id: str, timestamp: str, signature: str, body: bytes) -> bool:
    """Whether one of the signatures was made with one of the keys and the timestamp is within the tolerance."""
    if not _TIMESTAMP.fullmatch(timestamp) or abs(time.time() - int(timestamp)) > TOLERANCE_SECONDS:
        return False
    signatures = signature.split()
    expected = sign(keys, message_id, int(timestamp), body).split()
    return any(hmac.compare_digest(one.encode(), other.encode()) for one in signatures for other in expected)
