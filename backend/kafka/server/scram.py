"""SCRAM, both sides: RFC 5802 and RFC 7677, with the attributes that Kafka uses.

A server stores a verifier of each password, never the password itself.
"""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

DIGESTS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The hash functions by mechanism."""
ITERATIONS = 4096
"""The least that RFC 7677 allows, and enough for passwords that are long and random."""


class ScramError(Exception):
    """The peer's message does not belong to this exchange, or its proof is wrong."""


@dataclass(frozen=True)
class Verifier:
    """What a server needs to check a password, for one mechanism and salt."""

    stored_key: bytes
    server_key: bytes

    @classmethod
    def of(cls, mechanism: str, password: str, salt: bytes) -> "Verifier":
        digest = DIGESTS[mechanism]
        salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, ITERATIONS)
        client_key = hmac.digest(salted, b"Client Key", digest)
        return cls(hashlib.new(digest, client_key).digest(), hmac.digest(salted, b"Server Key", digest))


class ClientExchange:
    """The client's side of one exchange."""

    def __init__(self, mechanism: str, user: str, password: str, extension: str = "") -> None:
        self._digest = DIGESTS[mechanism]
        self._password = password
        escaped = user.replace("=", "=3D").replace(",", "=2C")
        self._nonce = secrets.token_hex(16)
        self._first_bare = ",".join(filter(None, [f"n={escaped}", f"r={self._nonce}", extension]))
        self._server_signature = b""

    def first(self) -> bytes:
        return f"n,,{self._first_bare}".encode()

    def final(self, challenge: bytes) -> bytes:
        """Raises ScramError when the challenge is not the answer to the first message."""
        fields = _fields(challenge)
        if not fields.get("r", "").startswith(self._nonce):
            raise ScramError("the SCRAM challenge does not belong to this exchange")
        salt, rounds = base64.b64decode(fields["s"]), int(fields["i"])
        salted = hashlib.pbkdf2_hmac(self._digest, self._password.encode(), salt, rounds)
        client_key = hmac.digest(salted, b"Client Key", self._digest)
        without_proof = f"c=biws,r={fields['r']}"
        message = f"{self._first_bare},{challenge.decode()},{without_proof}".encode()
        signature = hmac.digest(hashlib.new(self._digest, client_key).digest(), message, self._digest)
        proof = _xor(client_key, signature)
        self._server_signature = hmac.digest(hmac.digest(salted, b"Server Key", self._digest), message, self._digest)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, last: bytes) -> None:
        """Raises ScramError unless the server has proved that it knows the password."""
        signature = base64.b64decode(_fields(last).get("v", ""))
        if not hmac.compare_digest(signature, self._server_signature):
            raise ScramError("the server could not prove that it knows the user's password")


class ServerExchange:
    """The server's side of one exchange, for a user who may have several passwords with the same salt."""

    def __init__(self, mechanism: str, first: bytes) -> None:
        """Raises ScramError when it is not a client's first message, or asks for channel binding."""
        self._digest = DIGESTS[mechanism]
        header, _, bare = _text(first).partition(",")
        authorization, _, bare = bare.partition(",")
        fields = _fields(bare.encode())
        if header not in ("n", "y") or not fields.get("n") or not fields.get("r"):
            raise ScramError("The first message of SCRAM is malformed, or asks for channel binding.")
        self.user = fields["n"].replace("=2C", ",").replace("=3D", "=")
        self._binding = base64.b64encode(f"{header},{authorization},".encode()).decode()
        self._first_bare = bare
        self._nonce = fields["r"] + secrets.token_hex(16)
        self._challenge = ""

    def challenge(self, salt: bytes) -> bytes:
        self._challenge = f"r={self._nonce},s={base64.b64encode(salt).decode()},i={ITERATIONS}"
        return self._challenge.encode()

    def finish(self, final: bytes, verifiers: Iterable[Verifier]) -> tuple[Verifier, bytes]:
        """The verifier of the password that the client has, and the server's last message. Raises ScramError."""
        text = _text(final)
        without_proof, _, proof_text = text.rpartition(",p=")
        fields = _fields(without_proof.encode())
        if fields.get("c") != self._binding or fields.get("r") != self._nonce:
            raise ScramError("The last message of SCRAM does not belong to this exchange.")
        try:
            proof = base64.b64decode(proof_text, validate=True)
        except ValueError:
            raise ScramError("The proof is not base64.") from None
        message = f"{self._first_bare},{self._challenge},{without_proof}".encode()
        for verifier in verifiers:
            client_key = _xor(hmac.digest(verifier.stored_key, message, self._digest), proof)
            if hmac.compare_digest(hashlib.new(self._digest, client_key).digest(), verifier.stored_key):
                signature = hmac.digest(verifier.server_key, message, self._digest)
                return verifier, b"v=" + base64.b64encode(signature)
        raise ScramError("The password is wrong.")


def user_of(first: bytes) -> str:
    """The user named in a client's first message; empty if there is none."""
    bare = first.decode(errors="replace").split(",", 2)[-1]
    return _fields(bare.encode()).get("n", "").replace("=2C", ",").replace("=3D", "=")


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramError("A message of SCRAM is not UTF-8.") from None


def _fields(message: bytes) -> dict[str, str]:
    return {part[:1]: part[2:] for part in message.decode(errors="replace").split(",")}


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=False))
