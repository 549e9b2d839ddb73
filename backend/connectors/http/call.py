"""Calls of HTTP APIs by steps."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from pydantic import Field, JsonValue, field_validator

from backend.connectors.http.address import compile_path
from backend.connectors.http.connection import HttpConnection
from backend.connectors.parts.http_answers import refused
from backend.connectors.parts.http_endpoint import Endpoint
from backend.domain import json, message_templates, templates
from backend.domain.capabilities import Call, DeliveryError, Options
from backend.domain.message_templates import MessageTemplate, Metadata, UnfitValueError, get_in_step
from backend.domain.reasons import Reason
from backend.domain.transforms.base import TransformError
from backend.network.http_client import HttpError, Response

_ANSWER_BYTES = 1024 * 1024


class CallRequest(NamedTuple):
    """``path`` is appended to the connection's address; ``body`` is JSON."""

    method: str
    path: str
    body: bytes | None


class HttpCallOptions(Options):
    """One request to an HTTP API."""

    method: Literal["GET", "POST", "PUT", "PATCH"] = Field("GET", description="HTTP method.")
    path: MessageTemplate = Field(
        "",
        description="Appended to the connector's address; {{order.id}} is replaced by that field's value, and "
        "{{$message.id}} by the ID of the message that was received; there are also key, received_at, content_type, "
        "pipeline, version, source and headers.NAME.",
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
        message_templates.check(body)
        return body


class HttpCall(Call[HttpConnection, HttpCallOptions]):
    """Calls an API that answers in JSON."""

    options_model = HttpCallOptions

    async def open(self) -> None:
        self._endpoint = Endpoint(self.connection, kept_bytes=_ANSWER_BYTES)

    async def close(self) -> None:
        await self._endpoint.close()

    def secrets(self) -> list[str]:
        return self.connection.sent_secrets()

    def request(self) -> Callable[[Any, Metadata], CallRequest]:
        path = compile_path(self.options.path, get_in_step)
        body = templates.compile_value(self.options.body, get_in_step) if self.options.body is not None else None

        def request(document: Any, metadata: Metadata) -> CallRequest:
            source = document, metadata
            try:
                address = path(source)
            except UnfitValueError as error:
                raise TransformError(f"The API's address cannot be made. {error}") from None
            return CallRequest(self.options.method, address, json.dumps(body(source)) if body else None)

        return request

    async def call(self, request: CallRequest) -> bytes:
        headers = ["Accept: application/json"]
        if request.body is not None:
            headers.append("Content-Type: application/json")
        try:
            answer = await self._endpoint.request(
                request.method, self.connection.address(request.path), headers, request.body
            )
        except HttpError as error:
            raise DeliveryError(error.kind, f"The API: {error}", retryable=error.kind != Reason.FORBIDDEN) from None
        if not answer.is_success:
            raise refused(answer, who="API", final="correct the step or the message")
        return _json_of(answer)

    def shown(self, request: CallRequest) -> str:
        return f"{request.method} {request.path}" + (f" {request.body.decode()}" if request.body is not None else "")


def _json_of(answer: Response) -> bytes:
    """Raises DeliveryError."""
    if not answer.complete:
        text = f"The API's answer is longer than {_ANSWER_BYTES:,} bytes."
        raise DeliveryError(Reason.ANSWER, text, retryable=False, about_message=True)
    try:
        if answer.body:
            json.loads(answer.body)
    except json.InvalidJsonError as error:
        text = f"The API's answer is not JSON: {error}"
        raise DeliveryError(Reason.ANSWER, text, retryable=False, about_message=True) from None
    return answer.body
