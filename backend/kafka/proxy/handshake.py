"""How a connection begins: the available APIs, and authentication."""

import math
import time

from backend.kafka.proxy.routes import ROUTES, WITH_SESSIONS
from backend.kafka.proxy.sasl import REPLAYED, SCRAM, Login, Replay, TokenLogin, Tokens
from backend.kafka.server import scram
from backend.kafka.server.versions import too_new
from backend.kafka.wire import codec
from backend.kafka.wire.api import ApiKey, ErrorCode
from backend.kafka.wire.codec import RequestHeader
from backend.kafka.wire.messages import REQUESTS
from backend.kafka.wire.primitives import MalformedError, Parts
from backend.kafka.wire.structs import Struct

SIGN_IN = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
APIS = {ApiKey.API_VERSIONS, *SIGN_IN}

_ADVERTISED = {*ROUTES, *WITH_SESSIONS, *APIS}
_OLDEST_HANDSHAKE = 1
"""Version 0 is followed by SASL messages without Kafka's headers, which no recent client uses. It is advertised
nevertheless, because librdkafka checks for it."""


class Handshake:
    """Authentication of one client. The first broker decides; the proxy records the exchange to sign in at the others.

    ``is_complete`` once the client is authenticated; ``login`` is set then, unless the first broker is the only one.
    While ``is_pinned``, no other broker can replace the first one. ``expires`` is the monotonic time until which the
    broker granted the session (KIP-368), counted from when the client's last message was received: the broker, which
    counts from its answer, does not end the session earlier.
    """

    def __init__(self, tokens: Tokens | None) -> None:
        self._tokens = tokens
        self._mechanism = ""
        self._messages: list[bytes] = []
        self.login: Login | None = None
        self.is_complete = False
        self.expires = math.inf

    @property
    def is_pinned(self) -> bool:
        return bool(self._mechanism) and self.login is None

    def local_answer(self, header: RequestHeader, frame: bytearray) -> Parts | None:
        """The proxy's own answer; None if the request is forwarded to a broker. Raises MalformedError."""
        if header.api_key == ApiKey.API_VERSIONS:
            return too_new(header)
        body = codec.read_request(header.api_key, header.version, frame, header.body)
        if header.api_key == ApiKey.SASL_HANDSHAKE:
            if header.version < _OLDEST_HANDSHAKE:
                raise MalformedError("SaslHandshake version 0 is not supported.")
            self._mechanism, self._messages = body.mechanism, []
        else:
            self._messages.append(body.auth_bytes)
        return None

    def answered(
        self, header: RequestHeader, answer: bytearray, *, received: float, is_single: bool
    ) -> tuple[Parts, Login | None]:
        """The broker's answer as the client gets it, and the login for other brokers if it has just become known.

        ``received`` is the monotonic time of the request, and ``is_single`` tells that the cluster has one broker only.
        """
        if header.api_key == ApiKey.API_VERSIONS:
            return self._api_versions(header, answer), None
        body = codec.read_response(header.api_key, header.version, answer)
        login = None
        if header.api_key == ApiKey.SASL_HANDSHAKE:
            offered = (*REPLAYED, *SCRAM) if is_single or self._tokens is not None else REPLAYED
            body.mechanisms = [name for name in body.mechanisms if name in offered]
            if body.error_code == ErrorCode.NONE and self._mechanism not in body.mechanisms:
                body.error_code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            if body.error_code != ErrorCode.NONE:
                self._mechanism = ""
        elif body.error_code == ErrorCode.NONE:
            login = self._login()
            self.login = login or self.login
            if self._was_last(body.auth_bytes):
                self.is_complete = True
                self._begin_session(body, received)
        return codec.write_response(header.api_key, header.version, header.correlation_id, body), login

    def _begin_session(self, answer: Struct, received: float) -> None:
        if not answer.session_lifetime_ms:
            self.expires = math.inf
            return
        self.expires = received + answer.session_lifetime_ms / 1000
        # The client counts from this answer, and is told what is left by then.
        answer.session_lifetime_ms = max(1, int((self.expires - time.monotonic()) * 1000))

    def _was_last(self, answer: bytes) -> bool:
        """Whether an exchange without an error is over. OAUTHBEARER names its errors in an answer like any other."""
        return len(self._messages) == 2 if self._mechanism in SCRAM else not answer

    def _login(self) -> Login | None:
        if self._mechanism in REPLAYED:
            return Replay(self._mechanism, self._messages[-1])
        if len(self._messages) == 2 and self._tokens is not None:  # SCRAM has two messages
            return TokenLogin(self._tokens, scram.user_of(self._messages[0]), self._mechanism)
        return None

    @staticmethod
    def _api_versions(header: RequestHeader, answer: bytearray) -> Parts:
        if int.from_bytes(answer[8:10], "big") == ErrorCode.UNSUPPORTED_VERSION:
            codec.put_response_correlation(answer, header.correlation_id)
            return [answer]
        body = codec.read_response(header.api_key, header.version, answer)
        body.api_keys = [api for api in body.api_keys if api.api_key in _ADVERTISED]
        for api in body.api_keys:
            api.max_version = min(api.max_version, REQUESTS[api.api_key].versions.last)
        return codec.write_response(header.api_key, header.version, header.correlation_id, body)
