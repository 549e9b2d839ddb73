"""Authentication of one client: SASL PLAIN (RFC 4616) and SCRAM. User is the workspace, password an API key."""

import asyncio
from collections.abc import Sequence

from backend.kafka.gateway.ports import Account, Accounts
from backend.kafka.server import scram
from backend.kafka.server.scram import ServerExchange, Verifier
from backend.kafka.wire import codec
from backend.kafka.wire.api import ApiKey, ErrorCode
from backend.kafka.wire.structs import Struct

_PLAIN = "PLAIN"
MECHANISMS = (_PLAIN, *scram.DIGESTS)
_FAILED = "The user must be the short name of a workspace, and the password an API key of it that may read."
_FAILURE_SECONDS = 0.2
"""How long the answer to wrong credentials waits."""

_HANDSHAKE = codec.response_type(ApiKey.SASL_HANDSHAKE)
_AUTHENTICATE = codec.response_type(ApiKey.SASL_AUTHENTICATE)


class Authentication:
    """``account`` is set once the client is authenticated; a later exchange may renew it for the same workspace."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._mechanism = ""
        self._exchange: ServerExchange | None = None
        self._candidates: Sequence[tuple[Account, Verifier]] = ()
        self.account: Account | None = None

    def handshake(self, request: Struct) -> Struct:
        """Chooses the mechanism."""
        self._exchange = None
        self._mechanism = request.mechanism if request.mechanism in MECHANISMS else ""
        code = ErrorCode.NONE if self._mechanism else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        return _HANDSHAKE(error_code=code, mechanisms=list(MECHANISMS))

    async def authenticate(self, request: Struct) -> tuple[Struct, bool]:
        """The answer, and whether the connection may stay open."""
        if not self._mechanism:
            message = "SaslHandshake has to come first."
            return _AUTHENTICATE(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=message), False
        try:
            data = await (self._plain if self._mechanism == _PLAIN else self._scram)(request.auth_bytes)
        except scram.ScramError:
            data = None
        if data is not None:
            return _AUTHENTICATE(auth_bytes=data), True
        await asyncio.sleep(_FAILURE_SECONDS)
        return _AUTHENTICATE(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=_FAILED), False

    async def _plain(self, message: bytes) -> bytes | None:
        parts = message.decode(errors="replace").split("\0")
        account = await self._accounts.by_key(parts[1], parts[2]) if len(parts) == 3 else None
        return self._accept(account, b"")

    async def _scram(self, message: bytes) -> bytes | None:
        if self._exchange is None:
            self._exchange = ServerExchange(self._mechanism, message)
            salt, self._candidates = await self._accounts.verifiers(self._exchange.user, self._mechanism)
            return self._exchange.challenge(salt)
        verifier, last = self._exchange.finish(message, [verifier for _, verifier in self._candidates])
        account = next(account for account, candidate in self._candidates if candidate is verifier)
        self._exchange, self._candidates = None, ()
        return self._accept(account, last)

    def _accept(self, account: Account | None, last: bytes) -> bytes | None:
        if account is None or (self.account is not None and self.account.workspace != account.workspace):
            return None
        self.account = account
        return last
