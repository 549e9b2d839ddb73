"""Requests to the endpoint at an address."""

import dataclasses
from collections.abc import Awaitable
from typing import Any

from backend.connectors.parts.http_address import HttpAddress
from backend.connectors.parts.oauth import OAuth, TokenError, Tokens
from backend.domain.connector import CheckFailedError, DoubtfulAnswer
from backend.domain.masking import MASK
from backend.network.http_client import HttpClient, HttpError, Response

_OPTIONS_UNKNOWN = (405, 501)
"""What endpoints answer that take messages, but not the method OPTIONS."""


class Endpoint:
    """The client of one use of a connection, with its credentials. Made, used and closed on one event loop.

    An access token is renewed before it expires, and once when the endpoint answers 401.
    """

    def __init__(self, connection: HttpAddress, **settings: Any) -> None:
        tls = connection.tls_settings()
        self._client = HttpClient(tls=tls, **settings)
        self._headers = connection.headers()
        authentication = connection.authentication
        self._tokens = Tokens.of(authentication, tls) if isinstance(authentication, OAuth) else None

    def request(self, method: str, url: str, headers: list[str], body: bytes | None = None) -> Awaitable[Response]:
        """Raises HttpError when there is no answer, and TokenError when there is no token."""
        headers = [*self._headers, *headers]
        if self._tokens is None:
            return self._client.request(method, url, headers, body)
        return self._request_with_token(self._tokens, method, url, headers, body)

    async def close(self) -> None:
        await self._client.close()

    async def _request_with_token(
        self, tokens: Tokens, method: str, url: str, headers: list[str], body: bytes | None
    ) -> Response:
        token = await tokens.value()
        answer = await self._client.request(method, url, [*headers, f"Authorization: Bearer {token}"], body)
        if answer.status == 401:
            tokens.reject(token)
            token = await tokens.value()
            answer = await self._client.request(method, url, [*headers, f"Authorization: Bearer {token}"], body)
        # The other secrets are known beforehand; this one is known here alone.
        shown = answer.body.replace(token.encode(), MASK.encode())
        return answer if shown == answer.body else dataclasses.replace(answer, body=shown)


async def check_endpoint(connection: HttpAddress) -> str:
    """Sends an OPTIONS request, which has no side effects, and says what was answered. Raises CheckFailedError."""
    endpoint = Endpoint(connection, connect_timeout=10.0)
    try:
        answer = await endpoint.request("OPTIONS", str(connection.url), [])
    except HttpError as error:
        raise _check_failed(connection, error) from None
    except TokenError as error:
        raise CheckFailedError(str(error), field=f"authentication.{error.field}") from None
    finally:
        await endpoint.close()
    if answer.status in (401, 403):
        raise CheckFailedError(
            f"The endpoint answered {answer.status}: it does not accept these credentials.",
            field="authentication",
        )
    if answer.status >= 400 and answer.status not in _OPTIONS_UNKNOWN:
        return DoubtfulAnswer(
            f"The host answers, but with {answer.status} to OPTIONS: check the path, unless pipelines add one."
        )
    return f"Connected; the endpoint answered {answer.status} to OPTIONS."


def _check_failed(connection: HttpAddress, error: HttpError) -> CheckFailedError:
    cause = str(error).rstrip(".")
    match error.kind:
        case "dns":
            return CheckFailedError(f"The host {connection.url.host} is not known: check its spelling.", field="url")
        case "tls":
            return CheckFailedError(f"No trusted TLS connection: {cause}.", field=error.field or "verify_tls")
    return CheckFailedError(f"No connection: {cause}.", field="url")
