"""Signing in to brokers as the client did.

PLAIN and OAUTHBEARER are one message, good for every broker. SCRAM answers one broker's challenge; the other brokers
are shown a delegation token of the user (KIP-48), which the proxy has made in its own name (KIP-373).
"""

import asyncio
import base64
import hashlib
import hmac
import logging
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from backend.kafka.wire import codec
from backend.kafka.wire.api import ApiKey, ErrorCode
from backend.kafka.wire.codec import Struct

log = logging.getLogger(__name__)

REPLAYED = ("PLAIN", "OAUTHBEARER")
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")

HANDSHAKE_VERSION = 1
AUTHENTICATE_VERSION = 2
CREATE_TOKEN_VERSION = 3

_SETTLING_SECONDS = 2.0

Ask = Callable[[ApiKey, int, Struct], Awaitable[Struct]]
"""Asks a broker: API, version and body. Raises ConnectionError."""


class RefusedError(ConnectionError):
    """The broker does not take the credentials."""


class Login(ABC):
    """How a connection signs in. ``tries``: a token takes a moment to be known to every broker."""

    tries = 1

    @abstractmethod
    async def run(self, ask: Ask) -> float:
        """Signs in; for how many seconds that is good, 0 for ever. Raises ConnectionError."""


@dataclass(frozen=True)
class Replay(Login):
    """The client's own message once more. A secret; never logged."""

    mechanism: str
    message: bytes

    def __repr__(self) -> str:
        return f"Replay({self.mechanism})"

    async def run(self, ask: Ask) -> float:
        await _handshake(ask, self.mechanism)
        return float((await _authenticate(ask, self.message)).session_lifetime_ms) / 1000


@dataclass(frozen=True)
class Token:
    """A delegation token. A secret; never logged."""

    id: str
    password: str
    made: float
    expires: float

    def __repr__(self) -> str:
        return f"Token({self.id})"

    @property
    def has_ended(self) -> bool:
        return time.time() > self.expires - _SETTLING_SECONDS

    @property
    def is_settled(self) -> bool:
        """Long enough there for every broker to know it."""
        return time.time() > self.made + _SETTLING_SECONDS

    @property
    def is_fresh(self) -> bool:
        """Less than half of its life is over."""
        return time.time() < (self.made + self.expires) / 2


class TokenLogin(Login):
    """With a token of the user, by SCRAM (RFC 5802) with Kafka's extension that says so."""

    tries = 8

    def __init__(self, tokens: "Tokens", user: str, mechanism: str) -> None:
        self._tokens = tokens
        self._user = user
        self._mechanism = mechanism

    async def run(self, ask: Ask) -> float:
        token = await self._tokens.of(self._user)
        await _handshake(ask, self._mechanism)
        exchange = ScramExchange(self._mechanism, token.id, token.password, "tokenauth=true")
        challenge = await _authenticate(ask, exchange.first())
        last = await _authenticate(ask, exchange.final(challenge.auth_bytes))
        exchange.verify(last.auth_bytes)
        return float(last.session_lifetime_ms) / 1000


class Tokens:
    """Every user's delegation token, made when first needed and anew at half of its life."""

    def __init__(self, ask: Ask, lifetime_seconds: int) -> None:
        self._ask = ask
        self._lifetime = lifetime_seconds
        self._found: dict[str, Token] = {}
        self._next: dict[str, Token] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def of(self, user: str) -> Token:
        """Raises ConnectionError."""
        async with self._locks.setdefault(user, asyncio.Lock()):
            found = self._found.get(user)
            if found is None or found.has_ended:
                self._found[user] = self._next.pop(user) if user in self._next else await self._make(user)
            elif not found.is_fresh:
                if user not in self._next:
                    self._next[user] = await self._make(user)
                if self._next[user].is_settled:
                    self._found[user] = self._next.pop(user)
            return self._found[user]

    async def _make(self, user: str) -> Token:
        body = codec.request_type(ApiKey.CREATE_DELEGATION_TOKEN)(
            owner_principal_type="User", owner_principal_name=user, max_lifetime_ms=self._lifetime * 1000
        )
        made = await self._ask(ApiKey.CREATE_DELEGATION_TOKEN, CREATE_TOKEN_VERSION, body)
        if made.error_code != ErrorCode.NONE:
            raise RefusedError(
                f"no delegation token could be made for {user} (error {made.error_code}); the proxy's own user needs "
                "the right to create tokens"
            )
        log.info("A delegation token was made for %s.", user)
        password = base64.b64encode(made.hmac).decode()
        return Token(made.token_id, password, time.time(), made.expiry_timestamp_ms / 1000)


class ScramExchange:
    """The client's side of one exchange."""

    def __init__(self, mechanism: str, user: str, password: str, extension: str = "") -> None:
        self._digest = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
        self._password = password
        escaped = user.replace("=", "=3D").replace(",", "=2C")
        self._nonce = secrets.token_hex(16)
        self._first_bare = ",".join(filter(None, [f"n={escaped}", f"r={self._nonce}", extension]))
        self._server_signature = b""

    def first(self) -> bytes:
        return f"n,,{self._first_bare}".encode()

    def final(self, challenge: bytes) -> bytes:
        """Raises RefusedError when the challenge is not the answer to the first message."""
        fields = _scram_fields(challenge)
        if not fields.get("r", "").startswith(self._nonce):
            raise RefusedError("its SCRAM challenge is not an answer to what was sent")
        salt, rounds = base64.b64decode(fields["s"]), int(fields["i"])
        salted = hashlib.pbkdf2_hmac(self._digest, self._password.encode(), salt, rounds)
        client_key = self._hmac(salted, b"Client Key")
        without_proof = f"c=biws,r={fields['r']}"
        message = f"{self._first_bare},{challenge.decode()},{without_proof}".encode()
        signature = self._hmac(hashlib.new(self._digest, client_key).digest(), message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), message)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, last: bytes) -> None:
        """Raises RefusedError unless the broker knows the password too."""
        found = base64.b64decode(_scram_fields(last).get("v", ""))
        if not hmac.compare_digest(found, self._server_signature):
            raise RefusedError("it does not know the user's password")

    def _hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self._digest)


def scram_user(first: bytes) -> str:
    """The user whom a client's first message names; empty if it names none."""
    bare = first.decode(errors="replace").split(",", 2)[-1]
    return _scram_fields(bare.encode()).get("n", "").replace("=2C", ",").replace("=3D", "=")


def _scram_fields(message: bytes) -> dict[str, str]:
    return {part[:1]: part[2:] for part in message.decode(errors="replace").split(",")}


async def _handshake(ask: Ask, mechanism: str) -> None:
    body = codec.request_type(ApiKey.SASL_HANDSHAKE)(mechanism=mechanism)
    _check(await ask(ApiKey.SASL_HANDSHAKE, HANDSHAKE_VERSION, body))


async def _authenticate(ask: Ask, message: bytes) -> Struct:
    body = codec.request_type(ApiKey.SASL_AUTHENTICATE)(auth_bytes=message)
    answer = await ask(ApiKey.SASL_AUTHENTICATE, AUTHENTICATE_VERSION, body)
    _check(answer)
    return answer


def _check(answer: Struct) -> None:
    if answer.error_code != ErrorCode.NONE:
        raise RefusedError(f"it refuses the client's credentials (error {answer.error_code})")
