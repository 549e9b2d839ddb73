"""Authentication at brokers with the client's identity.

PLAIN and OAUTHBEARER consist of one message that every broker accepts. SCRAM answers the challenge of one broker; at
the others the proxy uses a delegation token of the user (KIP-48), which it creates under its own identity (KIP-373).
"""

import asyncio
import base64
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from backend.kafka.server import scram
from backend.kafka.wire import codec
from backend.kafka.wire.api import ApiKey, ErrorCode
from backend.kafka.wire.structs import Struct

log = logging.getLogger(__name__)

REPLAYED = ("PLAIN", "OAUTHBEARER")
SCRAM = tuple(scram.DIGESTS)

HANDSHAKE_VERSION = 1
AUTHENTICATE_VERSION = 2
CREATE_TOKEN_VERSION = 3

_SETTLING_SECONDS = 2.0

SendRequest = Callable[[ApiKey, int, Struct], Awaitable[Struct]]
"""Sends a broker a request (API, version and body) and awaits the answer. Raises ConnectionError."""


class RefusedError(ConnectionError):
    """The broker rejects the credentials."""


class Login(ABC):
    """How a connection signs in. ``tries`` exceeds 1 for tokens, since brokers learn of a new one with some delay."""

    tries = 1

    @abstractmethod
    async def run(self, send: SendRequest) -> float:
        """Signs in. Returns after how many seconds the session expires if the proxy has to renew it; 0 if it does not
        expire, or the client renews it. Raises ConnectionError."""


@dataclass(frozen=True)
class Replay(Login):
    """Sends the client's own message again. A secret; never logged.

    The client renews its session in time, and every connection signs in again then.
    """

    mechanism: str
    message: bytes

    def __repr__(self) -> str:
        return f"Replay({self.mechanism})"

    async def run(self, send: SendRequest) -> float:
        await _handshake(send, self.mechanism)
        await _authenticate(send, self.message)
        return 0.0


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
        """Whether the token is old enough for every broker to know it."""
        return time.time() > self.made + _SETTLING_SECONDS

    @property
    def is_fresh(self) -> bool:
        """Whether less than half of the token's lifetime is over."""
        return time.time() < (self.made + self.expires) / 2


class TokenLogin(Login):
    """Signs in with a token of the user: SCRAM (RFC 5802) with Kafka's ``tokenauth`` extension."""

    tries = 8

    def __init__(self, tokens: "Tokens", user: str, mechanism: str) -> None:
        self._tokens = tokens
        self._user = user
        self._mechanism = mechanism

    async def run(self, send: SendRequest) -> float:
        token = await self._tokens.of(self._user)
        await _handshake(send, self._mechanism)
        exchange = scram.ClientExchange(self._mechanism, token.id, token.password, "tokenauth=true")
        challenge = await _authenticate(send, exchange.first())
        try:
            last = await _authenticate(send, exchange.final(challenge.auth_bytes))
            exchange.verify(last.auth_bytes)
        except scram.ScramError as error:
            raise RefusedError(str(error)) from None
        return float(last.session_lifetime_ms) / 1000


class Tokens:
    """The users' delegation tokens, each created when first needed and replaced after half of its lifetime."""

    def __init__(self, send: SendRequest, lifetime_seconds: int) -> None:
        self._send = send
        self._lifetime = lifetime_seconds
        self._current: dict[str, Token] = {}
        self._next: dict[str, Token] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def of(self, user: str) -> Token:
        """The user's current token. Raises ConnectionError."""
        async with self._locks.setdefault(user, asyncio.Lock()):
            token = self._current.get(user)
            if token is None or token.has_ended:
                self._current[user] = self._next.pop(user) if user in self._next else await self._create(user)
            elif not token.is_fresh:
                if user not in self._next:
                    self._next[user] = await self._create(user)
                if self._next[user].is_settled:
                    self._current[user] = self._next.pop(user)
            return self._current[user]

    async def _create(self, user: str) -> Token:
        body = codec.request_type(ApiKey.CREATE_DELEGATION_TOKEN)(
            owner_principal_type="User", owner_principal_name=user, max_lifetime_ms=self._lifetime * 1000
        )
        answer = await self._send(ApiKey.CREATE_DELEGATION_TOKEN, CREATE_TOKEN_VERSION, body)
        if answer.error_code != ErrorCode.NONE:
            raise RefusedError(
                f"no delegation token could be created for {user} (error {answer.error_code}); grant "
                "the proxy's own user "
                "the right to create tokens (CreateTokens)"
            )
        log.info("A delegation token was created for %s.", user)
        password = base64.b64encode(answer.hmac).decode()
        return Token(answer.token_id, password, time.time(), answer.expiry_timestamp_ms / 1000)


async def _handshake(send: SendRequest, mechanism: str) -> None:
    body = codec.request_type(ApiKey.SASL_HANDSHAKE)(mechanism=mechanism)
    _check(await send(ApiKey.SASL_HANDSHAKE, HANDSHAKE_VERSION, body))


async def _authenticate(send: SendRequest, message: bytes) -> Struct:
    body = codec.request_type(ApiKey.SASL_AUTHENTICATE)(auth_bytes=message)
    answer = await send(ApiKey.SASL_AUTHENTICATE, AUTHENTICATE_VERSION, body)
    _check(answer)
    return answer


def _check(answer: Struct) -> None:
    if answer.error_code != ErrorCode.NONE:
        raise RefusedError(f"the broker rejected the credentials (error {answer.error_code})")
