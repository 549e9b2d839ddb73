import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import quote

from pydantic import Field, HttpUrl, JsonValue, SecretStr, field_validator

from backend.connectors.parts.authentication import BasicAuthentication, BearerAuthentication, NoAuthentication
from backend.domain import json, templates, webhook_signature
from backend.domain.capabilities import (
    BatchRefusedError,
    Call,
    Connection,
    Deliver,
    DeliverBatch,
    DeliveryError,
    Options,
    Receipt,
)
from backend.domain.connector import CheckFailedError, Connector, connectors
from backend.domain.masking import secret_values
from backend.domain.message import Message
from backend.domain.message_maker import is_json
from backend.domain.model import ADVANCED
from backend.domain.reasons import Reason
from backend.domain.transforms.base import TransformError
from backend.network.http_client import HttpClient, HttpError, Response

_ANSWER_BYTES = 1024 * 1024
_RETRYABLE = (408, 425, 429)
_ABOUT_THE_BATCH = (400, 409, 413, 415, 422)
"""Statuses with which a receiver rejects something in a batch; any other would reject each message as well."""


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

    @field_validator("signing_secrets")
    @classmethod
    def _check_secrets(cls, secrets: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for secret in secrets.values():
            webhook_signature.key_of(secret.get_secret_value())
        return secrets

    def hosts(self) -> dict[str, list[str]]:
        return {"url": [self.url.host or ""]}

    def address(self, path: str) -> str:
        """The connection's address with a path and a query appended, always after a slash: otherwise they could
        change the host, and another host would receive the credentials."""
        url = str(self.url)
        if not path:
            return url
        base, _, own_query = url.partition("?")
        path, _, query = path.partition("?")
        queries = "&".join(filter(None, (own_query, query)))
        return f"{base.rstrip('/')}/{path.lstrip('/')}" + (f"?{queries}" if queries else "")

    def headers(self) -> list[str]:
        """The headers of every request."""
        # Otherwise libcurl waits for "100 Continue" before it sends a large body.
        headers = [
            "Expect:",
            *(_header(name, value.get_secret_value()) for name, value in self.secret_headers.items()),
        ]
        if authorization := self.authentication.header():
            headers.append(f"Authorization: {authorization}")
        return headers

    def sent_secrets(self) -> list[str]:
        """Every secret, in each form in which it is sent."""
        sent = list(secret_values(self))
        if isinstance(self.authentication, BasicAuthentication):
            sent.append(self.authentication.header().removeprefix("Basic "))
        return sent


class HttpOptions(Options):
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
        description="Longest silence of the receiver within one attempt, in seconds; without it only the attempt's "
        "whole time is limited.",
        json_schema_extra=ADVANCED,
    )
    batch_lines: Literal["body", "envelope"] = Field(
        "body",
        description="What a line of a batch holds: the message's body, or an object with message_id, received_at and "
        "body.",
        json_schema_extra=ADVANCED,
    )
    batch_answer: Literal["one_status", "status_per_line"] = Field(
        "one_status",
        description="How the receiver answers a batch: with one status for all of it, or with 207 and a JSON list "
        "that has an object with a status for each line.",
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


class _HttpSender:
    """What single deliveries and batches share: one client per output, whose connections are kept alive."""

    connection: HttpConnection
    options: HttpOptions
    answer_bytes = 2048
    """How much of an answer is kept."""

    async def open(self) -> None:
        connection, options = self.connection, self.options
        self._client = HttpClient(
            verify_tls=connection.verify_tls,
            connect_timeout=options.connect_timeout_seconds,
            read_timeout=options.read_timeout_seconds,
            kept_bytes=self.answer_bytes,
        )
        self._url = connection.address(options.path)
        self._headers = [*connection.headers(), *(_header(*header) for header in options.headers.items())]
        self._keys = [webhook_signature.key_of(s.get_secret_value()) for s in connection.signing_secrets.values()]

    def target(self) -> str:
        return f"{self.options.method} {self.connection.address(self.options.path)}"

    def secrets(self) -> list[str]:
        return self.connection.sent_secrets()

    async def close(self) -> None:
        await self._client.close()

    def send(self, request_id: str, body: bytes, headers: list[str]) -> Awaitable[Response]:
        """Raises HttpError when there is no answer."""
        headers = [*self._headers, *headers, *self._signature(request_id, body)]
        return self._client.request(self.options.method, self._url, headers, body)

    def unanswered(self, error: HttpError) -> DeliveryError:
        host = f"{self.connection.url.host}:{self.connection.url.port}"
        return DeliveryError(error.kind, f"{host}: {error}", retryable=error.kind != Reason.FORBIDDEN)

    def _signature(self, request_id: str, body: bytes) -> list[str]:
        if not self._keys:
            return []
        now = int(time.time())
        signature = webhook_signature.sign(self._keys, request_id, now, body)
        return [
            f"{webhook_signature.ID_HEADER}: {request_id}",
            f"{webhook_signature.TIMESTAMP_HEADER}: {now}",
            f"{webhook_signature.SIGNATURE_HEADER}: {signature}",
        ]


class HttpDeliver(_HttpSender, Deliver[HttpConnection, HttpOptions]):
    """A request for each message."""

    options_model = HttpOptions

    async def deliver(self, message: Message) -> Receipt:
        headers = [
            f"Content-Type: {message.content_type}",
            f"Headrace-Message-Id: {message.id}",
            f"Headrace-Pipeline: {message.pipeline_id}",
            f"Headrace-Version: {message.version}",
        ]
        try:
            answer = await self.send(message.id, message.body, headers)
        except HttpError as error:
            raise self.unanswered(error) from None
        if answer.status >= 300:
            raise _refused(answer)
        return _receipt(answer)


class HttpDeliverBatch(_HttpSender, DeliverBatch[HttpConnection, HttpOptions]):
    """A request for many messages, whose body is JSON with a document on each line (NDJSON)."""

    options_model = HttpOptions
    answer_bytes = _ANSWER_BYTES

    @property
    def atomic(self) -> bool:
        return self.options.batch_answer == "one_status"

    async def deliver(self, messages: Sequence[Message]) -> Sequence[Receipt | DeliveryError]:
        lines: list[bytes | DeliveryError] = [self._line(message) for message in messages]
        sent = [message for message, line in zip(messages, lines, strict=True) if isinstance(line, bytes)]
        outcomes = iter(await self._send_lines(sent, [line for line in lines if isinstance(line, bytes)]))
        return [next(outcomes) if isinstance(line, bytes) else line for line in lines]

    async def _send_lines(
        self, messages: Sequence[Message], lines: Sequence[bytes]
    ) -> Sequence[Receipt | DeliveryError]:
        if not lines:
            return []
        # The same batch has the same id when it is sent again.
        batch_id = str(uuid.uuid5(uuid.UUID(messages[0].id), ",".join(message.id for message in messages)))
        headers = [
            "Content-Type: application/x-ndjson",
            f"Headrace-Batch-Id: {batch_id}",
            f"Headrace-Batch-Messages: {len(lines)}",
            f"Headrace-Pipeline: {messages[0].pipeline_id}",
        ]
        try:
            answer = await self.send(batch_id, b"".join(line + b"\n" for line in lines), headers)
        except HttpError as error:
            raise self.unanswered(error) from None
        if answer.status == 207 and not self.atomic:
            return _statuses(answer, len(lines))
        if answer.status >= 300:
            raise _refused(answer, BatchRefusedError if answer.status in _ABOUT_THE_BATCH else DeliveryError)
        return [_receipt(answer, shown=200)] * len(lines)

    def _line(self, message: Message) -> bytes | DeliveryError:
        if self.options.batch_lines == "body" and b"\n" not in message.body and is_json(message.content_type):
            return message.body
        try:
            document = json.loads(message.body)
        except json.InvalidJsonError as error:
            return DeliveryError(
                Reason.NOT_JSON, f"Lines of a batch are JSON; this message is not: {error}", retryable=False
            )
        if self.options.batch_lines == "envelope":
            document = {"message_id": message.id, "received_at": message.received_at, "body": document}
        return json.dumps(document)


class CallRequest(NamedTuple):
    """``path`` is appended to the connection's address; ``body`` is JSON."""

    method: str
    path: str
    body: bytes | None


class HttpCallOptions(Options):
    """One request to an HTTP API."""

    method: Literal["GET", "POST", "PUT", "PATCH"] = Field("GET", description="HTTP method.")
    path: templates.TextTemplate = Field(
        "",
        description="Appended to the connector's address; {{order.id}} is replaced by that field's value.",
        examples=["/customers/{{customer.id}}"],
    )
    body: JsonValue = Field(
        None,
        description="What is sent, as JSON; a text that is just {{order.id}} is replaced by that field's value, "
        "whatever its type. Without it, no body is sent.",
        examples=[{"id": "{{order.id}}"}],
    )

    @field_validator("body")
    @classmethod
    def _check_body(cls, body: JsonValue) -> JsonValue:
        templates.check(body)
        return body


class HttpCall(Call[HttpConnection, HttpCallOptions]):
    """Calls an API that answers in JSON."""

    options_model = HttpCallOptions
    reasons_of_the_message = frozenset({"http_400", "http_404", "http_409", "http_410", "http_422", Reason.ANSWER})

    async def open(self) -> None:
        self._client = HttpClient(verify_tls=self.connection.verify_tls, kept_bytes=_ANSWER_BYTES)
        self._headers = [*self.connection.headers(), "Accept: application/json"]

    async def close(self) -> None:
        await self._client.close()

    def secrets(self) -> list[str]:
        return self.connection.sent_secrets()

    def request(self) -> Callable[[Any], CallRequest]:
        path = templates.compile_text(self.options.path, _quoted)
        body = templates.compile_value(self.options.body) if self.options.body is not None else None

        def request(document: Any) -> CallRequest:
            address = path(document)
            if not {".", ".."}.isdisjoint(address.partition("?")[0].split("/")):
                raise TransformError(f"The API's address would lead elsewhere: {address[:200]}.")
            return CallRequest(self.options.method, address, json.dumps(body(document)) if body else None)

        return request

    async def call(self, request: CallRequest) -> bytes:
        headers = self._headers if request.body is None else [*self._headers, "Content-Type: application/json"]
        try:
            answer = await self._client.request(
                request.method, self.connection.address(request.path), headers, request.body
            )
        except HttpError as error:
            raise DeliveryError(error.kind, f"The API: {error}", retryable=error.kind != Reason.FORBIDDEN) from None
        if answer.status >= 300:
            raise _refused(answer, who="API", final="correct the step or the message")
        return _json_of(answer)

    def shown(self, request: CallRequest) -> str:
        return f"{request.method} {request.path}" + (f" {request.body.decode()}" if request.body is not None else "")


def _header(name: str, value: str) -> str:
    """In libcurl's syntax, where an empty value after a colon omits the header."""
    return f"{name}: {value}" if value else f"{name};"


def _receipt(answer: Response, shown: int | None = None) -> Receipt:
    return Receipt(status=str(answer.status), body=answer.body[:shown].decode(errors="replace"))


def _refused(
    answer: Response,
    kind: type[DeliveryError] = DeliveryError,
    *,
    who: str = "receiver",
    final: str = "the receiver rejected the message; correct the pipeline or the receiver, then redeliver",
) -> DeliveryError:
    """The error for an unsuccessful answer; ``final`` is the advice when a retry would not help."""
    text = answer.body.decode(errors="replace")
    retryable = answer.status in _RETRYABLE or answer.status >= 500
    excerpt = f": {text[:200]}" if text else ""
    advice = "it will be retried" if retryable else final
    return kind(
        f"http_{answer.status}",
        f"The {who} answered {answer.status}{excerpt} ({advice}).",
        retryable=retryable,
        retry_after=answer.retry_after,
        status=str(answer.status),
        response=text,
    )


def _statuses(answer: Response, count: int) -> list[Receipt | DeliveryError]:
    """The outcome of each line, from a list such as ``[{"status": 200}, {"status": 422, "error": "no order"}]``."""
    try:
        results = json.loads(answer.body)
        statuses = [int(result["status"]) for result in results]
    except (json.InvalidJsonError, TypeError, KeyError, ValueError):
        statuses = []
    if len(statuses) != count:
        text = f"The receiver answered 207 without a JSON list of {count} objects that have a status each."
        excerpt = answer.body[:200].decode("latin-1")
        raise DeliveryError(Reason.ANSWER, text, retryable=True, status="207", response=excerpt)
    outcomes: list[Receipt | DeliveryError] = []
    for status, result in zip(statuses, results, strict=True):
        part = Response(status, json.dumps(result)[:200], None, True)
        outcomes.append(_receipt(part) if status < 300 else _refused(part))
    return outcomes


def _json_of(answer: Response) -> bytes:
    """Raises DeliveryError."""
    if not answer.complete:
        raise DeliveryError(Reason.ANSWER, f"The API's answer is longer than {_ANSWER_BYTES:,} bytes.", retryable=False)
    try:
        if answer.body:
            json.loads(answer.body)
    except json.InvalidJsonError as error:
        raise DeliveryError(Reason.ANSWER, f"The API's answer is not JSON: {error}", retryable=False) from None
    return answer.body


def _quoted(value: Any) -> str:
    if value is None or isinstance(value, dict | list):
        raise TransformError("A field in the API's address is null, an object or a list.")
    # A value can neither add segments to the path nor parameters to the query.
    return quote(json.text(value), safe="")


@connectors.register
class HttpEndpoint(Connector):
    """Sends messages to an HTTP endpoint, and calls HTTP APIs."""

    type = "http"
    title = "HTTP endpoint"
    connection_model = HttpConnection
    capabilities = (HttpDeliver, HttpDeliverBatch, HttpCall)
    example = {
        "url": "https://api.example.com/webhooks",
        "authentication": {"type": "bearer", "token": "s3cret"},
    }

    @staticmethod
    async def check(connection: HttpConnection) -> str:
        """Sends an OPTIONS request, which has no side effects."""
        client = HttpClient(verify_tls=connection.verify_tls, connect_timeout=10.0)
        try:
            answer = await client.request("OPTIONS", str(connection.url), connection.headers())
        except HttpError as error:
            raise _check_failed(connection, error) from None
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
