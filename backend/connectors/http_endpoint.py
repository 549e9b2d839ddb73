import email.utils
import time
from typing import Annotated, Literal

import aiohttp
from pydantic import Field, HttpUrl, SecretStr, field_validator

from backend.domain.connector import (
    CheckFailedError,
    Connection,
    Connector,
    DeliveryError,
    Destination,
    DestinationOptions,
    Receipt,
    connectors,
)
from backend.domain.message import Message
from backend.domain.model import StrictModel

_BODY_LIMIT = 2048
"""Characters of the receiver's answer that are kept."""

_FINAL = "the receiver refused the message; correct the pipeline or the receiver, then redeliver"


class NoAuthentication(StrictModel):
    """No authentication."""

    type: Literal["none"] = "none"


class BearerAuthentication(StrictModel):
    """A bearer token."""

    type: Literal["bearer"] = "bearer"
    token: SecretStr = Field(min_length=1, description="Token sent as 'Authorization: Bearer …'.")


class BasicAuthentication(StrictModel):
    """A user name and password."""

    type: Literal["basic"] = "basic"
    username: str = Field(min_length=1, description="User name.")
    password: SecretStr = Field(description="Password.")


class HttpConnection(Connection):
    """An HTTP endpoint."""

    url: HttpUrl = Field(
        description="Address that messages are sent to.", examples=["https://api.example.com/webhooks"]
    )
    authentication: Annotated[
        NoAuthentication | BearerAuthentication | BasicAuthentication, Field(discriminator="type")
    ] = Field(default_factory=NoAuthentication, description="How Headrace identifies itself.")
    secret_headers: dict[str, SecretStr] = Field(
        default_factory=dict, description="Further headers whose values are secrets, such as an API key."
    )
    verify_tls: bool = Field(True, description="Refuse a server whose certificate is not trusted.")


class HttpOptions(DestinationOptions):
    """One delivery by HTTP."""

    method: Literal["POST", "PUT", "PATCH"] = Field("POST", description="HTTP method.")
    path: str = Field("", max_length=2000, description="Appended to the connector's address.", examples=["/orders"])
    headers: dict[str, str] = Field(default_factory=dict, description="Further headers sent with each message.")

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if not name or any(c in name + value for c in "\r\n:" if c != ":" or c in name):
                raise ValueError(f"{name!r} is not a header: neither line breaks nor a colon in the name.")
        return headers


class HttpDestination(Destination[HttpConnection, HttpOptions]):
    """One keep-alive client per output."""

    options_model = HttpOptions

    async def open(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=30, ssl=self.connection.verify_tls),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        self._url = (
            str(self.connection.url).rstrip("/") + self.options.path if self.options.path else str(self.connection.url)
        )
        self._headers = {**_static_headers(self.connection), **self.options.headers}

    async def deliver(self, message: Message) -> Receipt:
        headers = {
            **self._headers,
            "Content-Type": message.content_type,
            "Headrace-Message-Id": message.id,
            "Headrace-Pipeline": message.pipeline_id,
            "Headrace-Version": str(message.version),
        }
        try:
            async with self._session.request(
                self.options.method, self._url, data=message.body, headers=headers, allow_redirects=False
            ) as answer:
                body = await answer.content.read(_BODY_LIMIT)
                text = body.decode(errors="replace")
                if answer.status < 300:
                    return Receipt(status=str(answer.status), body=text)
                raise _refused(answer, text)
        except aiohttp.ClientError as error:
            raise DeliveryError("connection", f"{self._host()}: {error}", retryable=True) from None

    async def close(self) -> None:
        await self._session.close()

    def _host(self) -> str:
        return f"{self.connection.url.host}:{self.connection.url.port}"


def _static_headers(connection: HttpConnection) -> dict[str, str]:
    headers = {name: value.get_secret_value() for name, value in connection.secret_headers.items()}
    match connection.authentication:
        case BearerAuthentication(token=token):
            headers["Authorization"] = f"Bearer {token.get_secret_value()}"
        case BasicAuthentication(username=username, password=password):
            headers["Authorization"] = aiohttp.BasicAuth(username, password.get_secret_value()).encode()
    return headers


def _refused(answer: aiohttp.ClientResponse, text: str) -> DeliveryError:
    retryable = answer.status in (408, 425, 429) or answer.status >= 500
    said = f": {text[:200]}" if text else ""
    advice = "it will be tried again" if retryable else _FINAL
    return DeliveryError(
        f"http_{answer.status}",
        f"The receiver answered {answer.status}{said} ({advice}).",
        retryable=retryable,
        retry_after=_seconds(answer.headers.get("Retry-After")),
    )


def _seconds(retry_after: str | None) -> float | None:
    """RFC 9110 section 10.2.3: a number of seconds or a date."""
    if not retry_after:
        return None
    if retry_after.strip().isdigit():
        return float(retry_after)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time())
    except ValueError:
        return None


@connectors.register
class HttpEndpoint(Connector):
    """Sends each message to an HTTP endpoint."""

    type = "http"
    title = "HTTP endpoint"
    connection_model = HttpConnection
    destination = HttpDestination
    example = {
        "url": "https://api.example.com/webhooks",
        "authentication": {"type": "bearer", "token": "s3cret"},
    }

    @staticmethod
    async def check(connection: HttpConnection) -> str:
        """Sends an OPTIONS request, which asks for nothing to be done."""
        timeout = aiohttp.ClientTimeout(total=10)
        try:
            async with (
                aiohttp.ClientSession(
                    timeout=timeout, connector=aiohttp.TCPConnector(ssl=connection.verify_tls)
                ) as session,
                session.options(
                    str(connection.url), headers=_static_headers(connection), allow_redirects=False
                ) as answer,
            ):
                status = answer.status
        except aiohttp.ClientConnectorDNSError:
            raise CheckFailedError(
                f"The host {connection.url.host} is not known: check its spelling.", field="url"
            ) from None
        except aiohttp.ClientConnectorCertificateError as error:
            raise CheckFailedError(f"The certificate is not trusted: {error}.", field="verify_tls") from None
        except aiohttp.ClientError as error:
            raise CheckFailedError(f"No connection: {error}.", field="url") from None
        except TimeoutError:
            raise CheckFailedError("No answer within 10 seconds.", field="url") from None
        if status in (401, 403):
            raise CheckFailedError(
                f"The endpoint answered {status}: it does not accept these credentials.", field="authentication"
            )
        return f"Connected; the endpoint answered {status} to OPTIONS."
