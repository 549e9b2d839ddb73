import asyncio
import base64
import time
from typing import Annotated, Literal

from pydantic import Field, HttpUrl, SecretStr, field_validator

from backend.domain import webhook_signature
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
from backend.domain.masking import secret_values
from backend.domain.message import Message
from backend.domain.model import ADVANCED, StrictModel
from backend.network.http_client import HttpClient, HttpError, Response

_CHECK_SECONDS = 10.0

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
    signing_secrets: dict[str, SecretStr] = Field(
        default_factory=dict,
        description="Secrets that sign each message as Standard Webhooks defines it, by a name of your choice. "
        "With several, each signs: add the new one, change the receiver, then remove the old one.",
        examples=[{"2026": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}],
    )
    verify_tls: bool = Field(True, description="Refuse a server whose certificate is not trusted.")

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: HttpUrl) -> HttpUrl:
        if url.username or url.password:
            raise ValueError("Enter user name and password under authentication; addresses are shown to everybody.")
        return url

    def hosts(self) -> dict[str, list[str]]:
        return {"url": [self.url.host or ""]}

    @field_validator("signing_secrets")
    @classmethod
    def _check_secrets(cls, secrets: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for secret in secrets.values():
            webhook_signature.key_of(secret.get_secret_value())
        return secrets


def address(connection: HttpConnection, path: str) -> str:
    """A path and a query below the connector's own. They always begin with a slash: appended as they are, they could
    make another host of the connector's, which would be sent its credentials."""
    url = str(connection.url)
    if not path:
        return url
    base, _, own_query = url.partition("?")
    path, _, query = path.partition("?")
    queries = "&".join(filter(None, (own_query, query)))
    return f"{base.rstrip('/')}/{path.lstrip('/')}" + (f"?{queries}" if queries else "")


class HttpOptions(DestinationOptions):
    """One delivery by HTTP."""

    method: Literal["POST", "PUT", "PATCH"] = Field("POST", description="HTTP method.")
    path: str = Field("", max_length=2000, description="Appended to the connector's address.", examples=["/orders"])
    headers: dict[str, str] = Field(default_factory=dict, description="Further headers sent with each message.")
    connect_timeout_seconds: float = Field(
        5.0, gt=0, le=60, description="Longest time to connect, in seconds.", json_schema_extra=ADVANCED
    )
    read_timeout_seconds: float | None = Field(
        None,
        ge=1,
        le=120,
        description="Longest silence of the receiver within one try, in seconds; without it only the try's whole "
        "time is limited.",
        json_schema_extra=ADVANCED,
    )

    @field_validator("path")
    @classmethod
    def _check_path(cls, path: str) -> str:
        if any(character.isspace() or not character.isprintable() for character in path):
            raise ValueError("Write a path without spaces, such as /orders or /orders?kind=new; %20 is a space.")
        return path

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if not name or any(c in name + value for c in "\r\n:" if c != ":" or c in name):
                raise ValueError(f"{name!r} is not a header: neither line breaks nor a colon in the name.")
        return headers


class HttpDestination(Destination[HttpConnection, HttpOptions]):
    """One client per output: its connections are kept alive and shared with nobody."""

    options_model = HttpOptions

    async def open(self) -> None:
        connection, options = self.connection, self.options
        self._client = HttpClient(
            verify_tls=connection.verify_tls,
            connect_timeout=options.connect_timeout_seconds,
            read_timeout=options.read_timeout_seconds,
        )
        self._url = address(connection, options.path)
        self._headers = [*static_headers(connection), *(_line(*header) for header in options.headers.items())]
        self._keys = [webhook_signature.key_of(s.get_secret_value()) for s in connection.signing_secrets.values()]

    def target(self) -> str:
        return f"{self.options.method} {address(self.connection, self.options.path)}"

    def secrets(self) -> list[str]:
        return sent_secrets(self.connection)

    async def deliver(self, message: Message) -> Receipt:
        headers = [
            *self._headers,
            f"Content-Type: {message.content_type}",
            f"Headrace-Message-Id: {message.id}",
            f"Headrace-Pipeline: {message.pipeline_id}",
            f"Headrace-Version: {message.version}",
            *self._signature(message),
        ]
        try:
            answer = await self._client.request(self.options.method, self._url, headers, message.body)
        except HttpError as error:
            raise DeliveryError(error.kind, f"{self._host()}: {error}", retryable=error.kind != "forbidden") from None
        if answer.status < 300:
            return Receipt(status=str(answer.status), body=answer.body.decode(errors="replace"))
        raise refused(answer)

    async def close(self) -> None:
        await self._client.close()

    def _signature(self, message: Message) -> list[str]:
        if not self._keys:
            return []
        now = int(time.time())
        signature = webhook_signature.sign(self._keys, message.id, now, message.body)
        return [
            f"{webhook_signature.ID_HEADER}: {message.id}",
            f"{webhook_signature.TIMESTAMP_HEADER}: {now}",
            f"{webhook_signature.SIGNATURE_HEADER}: {signature}",
        ]

    def _host(self) -> str:
        return f"{self.connection.url.host}:{self.connection.url.port}"


def _line(name: str, value: str) -> str:
    """As libcurl wants it: an empty value after a colon would mean that the header is left out."""
    return f"{name}: {value}" if value else f"{name};"


def static_headers(connection: HttpConnection) -> list[str]:
    # libcurl would ask the receiver's leave before it sends a large body.
    headers = ["Expect:", *(_line(name, value.get_secret_value()) for name, value in connection.secret_headers.items())]
    match connection.authentication:
        case BearerAuthentication(token=token):
            headers.append(f"Authorization: Bearer {token.get_secret_value()}")
        case BasicAuthentication() as basic:
            headers.append(f"Authorization: Basic {_credentials(basic)}")
    return headers


def sent_secrets(connection: HttpConnection) -> list[str]:
    """Every secret, in each form in which it is sent."""
    found = list(secret_values(connection))
    if isinstance(connection.authentication, BasicAuthentication):
        found.append(_credentials(connection.authentication))
    return found


def _credentials(basic: BasicAuthentication) -> str:
    return base64.b64encode(f"{basic.username}:{basic.password.get_secret_value()}".encode()).decode()


def refused(answer: Response, *, who: str = "receiver", final: str = _FINAL) -> DeliveryError:
    """What an answer that is no success means; ``final`` is the advice where another try would not help."""
    text = answer.body.decode(errors="replace")
    retryable = answer.status in (408, 425, 429) or answer.status >= 500
    said = f": {text[:200]}" if text else ""
    advice = "it will be tried again" if retryable else final
    return DeliveryError(
        f"http_{answer.status}",
        f"The {who} answered {answer.status}{said} ({advice}).",
        retryable=retryable,
        retry_after=answer.retry_after,
        status=str(answer.status),
        response=text,
    )


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
        client = HttpClient(verify_tls=connection.verify_tls, connect_timeout=_CHECK_SECONDS)
        try:
            async with asyncio.timeout(_CHECK_SECONDS):
                answer = await client.request("OPTIONS", str(connection.url), static_headers(connection))
        except HttpError as error:
            raise _check_failed(connection, error) from None
        except TimeoutError:
            raise CheckFailedError("No answer within 10 seconds.", field="url") from None
        finally:
            await client.close()
        if answer.status in (401, 403):
            raise CheckFailedError(
                f"The endpoint answered {answer.status}: it does not accept these credentials.",
                field="authentication",
            )
        return f"Connected; the endpoint answered {answer.status} to OPTIONS."


def _check_failed(connection: HttpConnection, error: HttpError) -> CheckFailedError:
    match error.kind:
        case "dns":
            return CheckFailedError(f"The host {connection.url.host} is not known: check its spelling.", field="url")
        case "tls":
            return CheckFailedError(f"No trusted TLS connection: {error}.", field="verify_tls")
    return CheckFailedError(f"No connection: {error}.", field="url")
