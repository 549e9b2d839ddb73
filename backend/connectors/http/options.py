"""What an output sets, and what it makes of a message's request."""

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, Field, JsonValue, field_validator

from backend.connectors.http.address import compile_path
from backend.connectors.http.connection import HttpConnection
from backend.connectors.parts.http_address import header_line
from backend.domain import json, limits, message_templates, templates
from backend.domain.capabilities import Options
from backend.domain.http_text import HeaderName, HeaderValue, check_value
from backend.domain.message import Message
from backend.domain.message_templates import MessageTemplate, TemplateSource
from backend.domain.model import ADVANCED


class HttpOptions(Options):
    """One delivery by HTTP."""

    method: Literal["POST", "PUT", "PATCH"] = Field("POST", description="HTTP method.")
    path: MessageTemplate = Field(
        "",
        max_length=2000,
        description="Appended to the connector's address. {{order.id}} is replaced by that field's value, "
        "percent-encoded, and {{$message.id}} by the message's ID; there are also key, received_at, content_type, "
        "pipeline, version, source and headers.NAME.",
        examples=["/orders/{{order.id}}"],
    )
    headers: dict[HeaderName, Annotated[HeaderValue, AfterValidator(message_templates.check)]] = Field(
        default_factory=dict,
        description="Further headers sent with each message, with placeholders as in the path.",
        examples=[{"X-Tenant": "{{tenant}}"}],
    )
    body: JsonValue = Field(
        None,
        description="What is sent instead of the message's body, as JSON, with placeholders as in the path; a text "
        "that is just {{order.id}} is replaced by that field's value, whatever its type.",
        examples=[{"id": "{{order.id}}", "source": "{{$message.pipeline}}"}],
    )
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
        description="How the receiver answers a batch: with one status for all of it, or with a JSON list that has an "
        "object with a status for each line, from 100 to 599, in each successful answer, such as 200 or 207.",
        json_schema_extra=ADVANCED,
    )

    @field_validator("path")
    @classmethod
    def _check_path(cls, path: str) -> str:
        fixed = templates.without_placeholders(path)
        if any(character.isspace() or not character.isprintable() for character in fixed):
            raise ValueError("Write a path without spaces, such as /orders or /orders?kind=new; %20 is a space.")
        return path

    @field_validator("body")
    @classmethod
    def _check_body(cls, body: JsonValue) -> JsonValue:
        message_templates.check(body)
        return body


class HttpBatchOptions(HttpOptions):
    """Deliveries by HTTP that share a request."""

    @field_validator("path", "headers")
    @classmethod
    def _check_shared(cls, value: Any) -> Any:
        if templates.placeholders(value):
            raise ValueError(
                "Messages of a batch share a path and headers: remove the placeholders, or the batches of this output."
            )
        return value


class Content(NamedTuple):
    """What is sent of a message."""

    content_type: str
    body: bytes


class RequestTemplates:
    """An output's address, headers and content as functions of a message.

    They raise ValueError for a message that lacks what they need; see ``message_templates.delivery_error``.
    """

    def __init__(self, connection: HttpConnection, options: HttpOptions) -> None:
        self._connection = connection
        self._path = compile_path(options.path, TemplateSource.get) if templates.placeholders(options.path) else None
        self._url = connection.address(options.path)
        varying = {name: value for name, value in options.headers.items() if templates.placeholders(value)}
        self._fixed_headers = [header_line(*header) for header in options.headers.items() if header[0] not in varying]
        self._headers = {
            name: message_templates.compile_text(value, message_templates.scalar_text)
            for name, value in varying.items()
        }
        self._body = message_templates.compile_value(options.body) if options.body is not None else None

    def url(self, source: TemplateSource) -> str:
        return self._url if self._path is None else self._connection.address(self._path(source))

    def headers(self, source: TemplateSource) -> list[str]:
        if not self._headers:
            return self._fixed_headers
        rendered = [header_line(name, check_value(value(source))) for name, value in self._headers.items()]
        return self._fixed_headers + rendered

    def content(self, message: Message, source: TemplateSource) -> Content:
        if self._body is None:
            return Content(message.content_type, message.body)
        body = json.dumps(self._body(source))
        limits.check_body(len(body))
        return Content("application/json", body)
