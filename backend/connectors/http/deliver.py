"""Deliveries of single messages."""

import functools
import time
from collections.abc import Awaitable

from backend.connectors.http.connection import HttpConnection
from backend.connectors.http.options import HttpOptions, RequestTemplates
from backend.connectors.parts.http_answers import receipt, refused
from backend.connectors.parts.http_endpoint import Endpoint
from backend.domain import message_templates, webhook_signature
from backend.domain.capabilities import Deliver, DeliveryError, Receipt, Sent
from backend.domain.http_text import HeaderError, check_value
from backend.domain.message import Message
from backend.domain.message_templates import TemplateSource
from backend.domain.reasons import Reason
from backend.domain.templates import placeholders
from backend.network.http_client import HttpError, Response


class HttpSender:
    """What single deliveries and batches share: one client per output, whose connections are kept alive."""

    connection: HttpConnection
    options: HttpOptions
    answer_bytes = 2048
    """How much of an answer is kept."""

    async def open(self) -> None:
        connection, options = self.connection, self.options
        self._endpoint = Endpoint(
            connection,
            connect_timeout=options.connect_timeout_seconds,
            read_timeout=options.read_timeout_seconds,
            kept_bytes=self.answer_bytes,
        )
        self._keys = [webhook_signature.key_of(s.get_secret_value()) for s in connection.signing_secrets.values()]

    @functools.cached_property
    def templates(self) -> RequestTemplates:
        return RequestTemplates(self.connection, self.options)

    def target(self) -> str:
        address = self.connection.address(self.options.path).replace("%7B%7B", "{{").replace("%7D%7D", "}}")
        return f"{self.options.method} {address}"

    def secrets(self) -> list[str]:
        return self.connection.sent_secrets()

    async def close(self) -> None:
        await self._endpoint.close()

    def send(self, request_id: str, url: str, headers: list[str], body: bytes) -> Awaitable[Response]:
        """Raises HttpError when there is no answer, and DeliveryError when there is no access token."""
        signed = [*headers, *self._signature(request_id, body)]
        return self._endpoint.request(self.options.method, url, signed, body)

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


class HttpDeliver(HttpSender, Deliver[HttpConnection, HttpOptions]):
    """A request for each message.

    At least once: a request whose answer was lost is sent again, with the same Headrace-Message-Id. A temporary failure
    with Retry-After holds the output until then, for six hours at most."""

    options_model = HttpOptions

    async def deliver(self, message: Message) -> Receipt:
        url, headers, body = self._request(message)
        try:
            answer = await self.send(message.id, url, headers, body)
        except HttpError as error:
            raise self.unanswered(error) from None
        if not answer.is_success:
            raise refused(answer)
        return receipt(answer)

    def sent(self, message: Message) -> Sent:
        url, _, body = self._request(message)
        return Sent(body, url if placeholders(self.options.path) else "")

    def _request(self, message: Message) -> tuple[str, list[str], bytes]:
        """Address, headers without the signature, and body. Raises DeliveryError."""
        source = TemplateSource(message)
        try:
            url = self.templates.url(source)
            more = self.templates.headers(source)
            content_type, body = self.templates.content(message, source)
        except ValueError as error:
            raise message_templates.delivery_error(error) from None
        # A message may have come from anywhere.
        try:
            check_value(f"{content_type}{message.id}")
        except HeaderError as error:
            text = f"The message's content type or id cannot be sent as a header. {error}"
            raise DeliveryError(Reason.MALFORMED, text, retryable=False, about_message=True) from None
        headers = [
            *more,
            f"Content-Type: {content_type}",
            f"Headrace-Message-Id: {message.id}",
            f"Headrace-Pipeline: {message.pipeline_id}",
            f"Headrace-Version: {message.version}",
        ]
        return url, headers, body
