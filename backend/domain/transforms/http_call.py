from collections.abc import Sequence
from typing import Any, ClassVar, Literal
from urllib.parse import quote
from uuid import UUID

from pydantic import Field, JsonValue, field_validator, model_validator

from backend.domain import json, paths, templates
from backend.domain.breaker import BreakerPolicy
from backend.domain.model import ADVANCED
from backend.domain.rate_limit import RateLimitPolicy
from backend.domain.retry import RetryPolicy
from backend.domain.transforms.base import (
    CallFailedError,
    CallRequest,
    StepServices,
    TransformError,
    WaitingStep,
    WaitingTransform,
    transforms,
)

BREAKER_PREFIX = "API-"


@transforms.register
class HttpCall(WaitingTransform):
    """Asks an external API and puts what it answers into the message."""

    example = {
        "type": "http_call",
        "name": "customers",
        "connector": "0199d1a0-0000-7000-8000-000000000000",
        "path": "/customers/{{customer.id}}",
        "to": "customer.details",
        "cache_seconds": 300,
    }

    connector_type: ClassVar[str] = "http"

    type: Literal["http_call"] = "http_call"
    name: str = Field(
        "api",
        pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$",
        description="Short name, unique in the pipeline; its circuit breaker and its rate limit are kept under it.",
    )
    connector: UUID = Field(description="HTTP connector with the API's address and credentials.")
    method: Literal["GET", "POST", "PUT", "PATCH"] = Field("GET", description="HTTP method.")
    path: templates.TextTemplate = Field(
        "",
        description="Appended to the connector's address; {{order.id}} stands for that field's value.",
        examples=["/customers/{{customer.id}}"],
    )
    body: JsonValue = Field(
        None,
        description="What is sent, as JSON; a text that is just {{order.id}} stands for that field's value, "
        "whatever its type. Nothing is sent without it.",
        examples=[{"id": "{{order.id}}"}],
    )
    to: paths.FieldPath | None = Field(None, description="Field that gets the whole answer.")
    mapping: dict[paths.FieldPath, paths.FieldPath] = Field(
        default_factory=dict,
        description="Fields of the message, each with the field of the answer that it gets; one that the answer "
        "lacks is left as it is.",
        examples=[{"customer.name": "name"}],
    )
    on_failure: Literal["dead_letter", "fallback", "skip"] = Field(
        "dead_letter",
        description="Without a usable answer the message becomes a dead letter, goes on with the fallback in the "
        "answer's place, or goes on as it is.",
    )
    fallback: JsonValue = Field(None, description="What counts as the answer when there is none, as JSON.")
    cache_seconds: float = Field(
        0, ge=0, le=86_400, description="How long an answer serves equal requests, in seconds; 0 asks each time."
    )
    timeout_seconds: float = Field(
        5.0, gt=0, le=60, description="Longest time for one try, in seconds.", json_schema_extra=ADVANCED
    )
    concurrency: int = Field(
        32, ge=1, le=256, description="Requests at the same time, per task.", json_schema_extra=ADVANCED
    )
    retry: RetryPolicy = Field(
        default_factory=RetryPolicy, description="What happens after a failed request.", json_schema_extra=ADVANCED
    )
    rate_limit: RateLimitPolicy | None = Field(
        None, description="Most that the API is asked; messages wait for their turn.", json_schema_extra=ADVANCED
    )
    breaker: BreakerPolicy | None = Field(
        None,
        description="When an API that fails is left alone. Without it, the installation's default is used.",
        json_schema_extra=ADVANCED,
    )

    @property
    def breaker_name(self) -> str:
        """Other than any output's name, which has no capitals."""
        return f"{BREAKER_PREFIX}{self.name}"

    @field_validator("body")
    @classmethod
    def _check_body(cls, body: JsonValue) -> JsonValue:
        templates.check(body)
        return body

    @model_validator(mode="after")
    def _check_answer_goes_somewhere(self) -> "HttpCall":
        if self.to is None and not self.mapping:
            raise ValueError("Say where the answer goes: a field that gets all of it, or fields that get parts.")
        return self

    def compile_waiting(self) -> WaitingStep:
        request = self._request()
        target = paths.parse_path(self.to) if self.to else None
        mapped = [(paths.parse_path(field), paths.parse_path(part)) for field, part in self.mapping.items()]

        async def step(document: Any, services: StepServices) -> Sequence[Any]:
            try:
                answer = await services.call(self, request(document))
            except CallFailedError:
                if self.on_failure == "dead_letter":
                    raise
                if self.on_failure == "skip":
                    return (document,)
                answer = self.fallback
            for field, part in mapped:
                value = paths.get(answer, part)
                if value is not paths.MISSING:
                    paths.put(document, field, value)
            if target is not None:
                paths.put(document, target, answer)
            return (document,)

        return step

    def _request(self) -> Any:
        path = templates.compile_text(self.path, _quoted)
        body = templates.compile_value(self.body) if self.body is not None else None

        def request(document: Any) -> CallRequest:
            address = path(document)
            if not {".", ".."}.isdisjoint(address.partition("?")[0].split("/")):
                raise TransformError(f"The API's address would lead elsewhere: {address[:200]}.")
            return CallRequest(self.method, address, json.dumps(body(document)) if body else None)

        return request


def _quoted(value: Any) -> str:
    if value is None or isinstance(value, dict | list):
        raise TransformError("A field in the API's address is null, an object or a list.")
    # A value can neither add segments to the path nor parameters to the query.
    return quote(json.text(value), safe="")
