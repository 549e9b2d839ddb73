"""OAuth 2.0 with client credentials (RFC 6749, section 4.4): the client, and its access tokens."""

import asyncio
import contextlib
import dataclasses
import time
from typing import Any, ClassVar, Literal, NamedTuple
from urllib.parse import quote_plus, urlencode
from weakref import WeakKeyDictionary

from cachetools import LRUCache
from pydantic import Field, HttpUrl, SecretStr

from backend.connectors.parts.authentication import BasicAuthentication
from backend.domain import json
from backend.domain.capabilities import DeliveryError
from backend.domain.masking import redacted, secret_values
from backend.domain.model import ADVANCED, StrictModel
from backend.domain.reasons import Reason
from backend.network.http_client import HttpClient, HttpError, Response, TlsSettings

_TOKEN_SECONDS = 5.0
_LIFETIME_SECONDS = 300.0
"""Of a token whose lifetime the authorization server does not say."""
_LONGEST_LIFETIME_SECONDS = 10**10
"""Three hundred years; librdkafka counts in microseconds, of which 64 bits hold no more than a thousand times that."""
_RENEWED_AFTER = 0.8
"""The part of its lifetime after which a token is renewed."""
_PAUSE_SECONDS = 5.0
"""How long a renewal that failed is not repeated while the present token is valid."""
_CLIENTS = 1000


class OAuth(StrictModel):
    """OAuth 2.0 with client credentials."""

    type: Literal["oauth"] = "oauth"
    token_url: HttpUrl = Field(
        description="Address of the authorization server that issues tokens. An authority of the connection's may have "
        "signed its certificate, or one that the operating system trusts; it is shown the client certificate, too.",
        examples=["https://login.example.com/oauth2/token"],
    )
    client_id: str = Field(min_length=1, description="Client ID.")
    client_secret: SecretStr = Field(min_length=1, description="Client secret.")
    scope: str = Field("", description="Scopes to ask for, separated by spaces.")
    audience: str = Field(
        "",
        description="Audience to ask for, where the authorization server wants one.",
        json_schema_extra=ADVANCED,
    )
    client_login: Literal["header", "body"] = Field(
        "header",
        description="Where client ID and secret are sent: in the Authorization header, or in the body of the request "
        "for a token.",
        json_schema_extra=ADVANCED,
    )

    def header(self) -> str:
        """None that is known beforehand; see ``Tokens``."""
        return ""

    def sent_secrets(self) -> list[str]:
        """The secret in each form in which it is sent."""
        secret = quote_plus(self.client_secret.get_secret_value())
        return [secret, self._login().removeprefix("Basic ")]

    def _login(self) -> str:
        # Encoded first, as RFC 6749 asks for.
        password = SecretStr(quote_plus(self.client_secret.get_secret_value()))
        return BasicAuthentication(username=quote_plus(self.client_id), password=password).header()

    def token_request(self) -> tuple[list[str], bytes]:
        """Headers and body."""
        form = {"grant_type": "client_credentials", "scope": self.scope, "audience": self.audience}
        headers = ["Content-Type: application/x-www-form-urlencoded", "Accept: application/json", "Expect:"]
        if self.client_login == "header":
            headers.append(f"Authorization: {self._login()}")
        else:
            form |= {"client_id": self.client_id, "client_secret": self.client_secret.get_secret_value()}
        return headers, urlencode({name: value for name, value in form.items() if value}).encode()


class Token(NamedTuple):
    """An access token. ``expires`` is a Unix time, and so is ``renewed``, when the next one is asked for."""

    value: str
    renewed: float
    expires: float


class TokenError(DeliveryError):
    """The authorization server issued no token. ``field`` is the field of the client that is to blame."""

    field = "token_url"


class Tokens:
    """The access token of a client, which all its users on an event loop share.

    A token is renewed while it is still valid, so that nobody waits for the next one.
    """

    _by_loop: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, LRUCache[tuple[OAuth, TlsSettings], "Tokens"]]] = (
        WeakKeyDictionary()
    )

    @classmethod
    def of(cls, oauth: OAuth, tls: TlsSettings) -> "Tokens":
        """Those of this client on the running event loop. A token may be bound to the client's certificate
        (RFC 8705), so that clients with another one have others."""
        clients = cls._by_loop.setdefault(asyncio.get_running_loop(), LRUCache(_CLIENTS))
        tokens = clients.get((oauth, tls))
        if tokens is None:
            tokens = clients[oauth, tls] = cls(oauth, tls)
        return tokens

    def __init__(self, oauth: OAuth, tls: TlsSettings) -> None:
        self._oauth = oauth
        self._tls = tls
        self._token: Token | None = None
        self._request: asyncio.Task[Token] | None = None

    async def value(self) -> str:
        """An access token that is valid now. Raises TokenError."""
        token, now = self._token, time.time()
        if token is not None and now < token.renewed:
            return token.value
        if self._request is None:
            self._request = asyncio.create_task(self._renew())
            # Nobody awaits it while the present token is valid.
            self._request.add_done_callback(lambda request: request.cancelled() or request.exception())
        if token is not None and now < token.expires:
            return token.value
        return (await asyncio.shield(self._request)).value

    def reject(self, value: str) -> None:
        """The receiver does not accept that token; the next call gets another one."""
        if self._token is not None and self._token.value == value:
            self._token = None

    async def _renew(self) -> Token:
        try:
            self._token = await fetched_token(self._oauth, self._tls)
            return self._token
        except TokenError:
            if self._token is not None:
                self._token = self._token._replace(renewed=time.time() + _PAUSE_SECONDS)
            raise
        finally:
            self._request = None


async def fetched_token(oauth: OAuth, tls: TlsSettings) -> Token:
    """A new token. ``tls`` is that of the connection which it is for. Raises TokenError.

    One authority of a company's own often signs both servers, but a private API may take the tokens of a public
    service, too. The client's secret is sent to a server that is verified, whatever the connection does.
    """
    headers, body = oauth.token_request()
    tls = dataclasses.replace(tls, verify=True, system_too=True)
    client = HttpClient(tls=tls, connect_timeout=_TOKEN_SECONDS, kept_bytes=64 * 1024)
    try:
        async with asyncio.timeout(_TOKEN_SECONDS):
            answer = await client.request("POST", str(oauth.token_url), headers, body)
    except TimeoutError:
        text = f"it did not answer within {_TOKEN_SECONDS:g} seconds"
        raise _failure(oauth, Reason.TIMEOUT, text) from None
    except HttpError as error:
        raise _failure(oauth, error.kind, str(error).rstrip("."), retryable=error.kind != Reason.FORBIDDEN) from None
    finally:
        await client.close()
    if answer.status != 200:
        raise _refusal(oauth, answer)
    try:
        document = json.loads(answer.body)
        value = str(document["access_token"])
    except (json.InvalidJsonError, KeyError, TypeError):
        raise _failure(oauth, Reason.ANSWER, "it answered without an access token") from None
    try:
        lifetime = lifetime_of(document)
    except ValueError:
        raise _failure(oauth, Reason.ANSWER, "it answered with a lifetime (expires_in) that no token has") from None
    if not value.isascii() or not value.isprintable():
        raise _failure(oauth, Reason.ANSWER, "it answered with an access token that no header can hold")
    now = time.time()
    return Token(value, now + lifetime * _RENEWED_AFTER, now + lifetime)


def lifetime_of(document: dict[str, Any]) -> float:
    """The seconds for which the answer's token is valid. Raises ValueError."""
    written = document.get("expires_in")
    if not written:
        return _LIFETIME_SECONDS
    # Some servers write the number as a text.
    return json.bounded_float(json.loads(json.text(written)), 0, _LONGEST_LIFETIME_SECONDS)


def _refusal(oauth: OAuth, answer: Response) -> TokenError:
    """The authorization server's answer; RFC 6749, section 5.2, says which field it is about."""
    if answer.status == 429 or answer.status >= 500:
        return _failure(oauth, Reason.ANSWER, f"it answered {answer.status}", retry_after=answer.retry_after)
    document: Any = None
    with contextlib.suppress(json.InvalidJsonError):
        document = json.loads(answer.body)
    error = document if isinstance(document, dict) else {}
    code, explained = str(error.get("error", "")), str(error.get("error_description", ""))
    field, advice = _REFUSALS.get(code, ("token_url", "check client ID, client secret and scope"))
    detail = f" ({(explained or code)[:200]})" if code else ""
    failure = _failure(oauth, Reason.CONFIGURATION, f"it answered {answer.status}{detail}; {advice}")
    failure.field = field
    return failure


_REFUSALS = {
    "invalid_client": ("client_secret", "check client ID and client secret"),
    "unauthorized_client": ("client_id", "this client may not use client credentials"),
    "unsupported_grant_type": ("client_id", "this client may not use client credentials"),
    "invalid_scope": ("scope", "check the scopes"),
    "invalid_target": ("audience", "check the audience"),
}


def _failure(oauth: OAuth, reason: str, text: str, **fields: Any) -> TokenError:
    """Retryable by default: whoever corrects the login wants the messages delivered afterwards."""
    text = redacted(f"No token from {oauth.token_url.host}: {text}.", [*secret_values(oauth), *oauth.sent_secrets()])
    return TokenError(reason, text, **{"retryable": True, **fields})
