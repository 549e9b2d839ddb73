from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, JsonValue, model_validator

from backend.domain import capabilities, limits, paths
from backend.domain.breaker import BreakerPolicy
from backend.domain.model import ADVANCED
from backend.domain.rate_limit import RateLimitPolicy
from backend.domain.retry import RetryPolicy
from backend.domain.transforms.base import (
    CallFailedError,
    Calls,
    StepResources,
    WaitingStep,
    WaitingTransform,
    transforms,
)
from backend.domain.uses import Named, Use

BREAKER_PREFIX = "API-"
"""Unlike any output's name, which has no capitals."""


@transforms.register
class Call(WaitingTransform, Use, Named):
    """Calls an external system and puts its answer into the message."""

    example = {
        "type": "call",
        "name": "customers",
        "connector": "0199d1a0-0000-7000-8000-000000000000",
        "options": {"path": "/customers/{{customer.id}}"},
        "to": "customer.details",
        "cache_seconds": 300,
    }
    capabilities = (capabilities.Call,)

    type: Literal["call"] = "call"
    name: str = Field(
        "api",
        pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$",
        description="Short name, unique in the pipeline; its circuit breaker and its rate limit are kept under it.",
    )
    to: paths.FieldPath | None = Field(None, description="Field that receives the whole answer.")
    mapping: dict[paths.FieldPath, paths.FieldPath] = Field(
        default_factory=dict,
        description="Fields of the message, each with the field of the answer that it receives; one that the answer "
        "lacks is left as it is.",
        examples=[{"customer.name": "name"}],
    )
    on_failure: Literal["dead_letter", "fallback", "skip"] = Field(
        "dead_letter",
        description="Without a usable answer the message becomes a dead letter, continues with the fallback in the "
        "answer's place, or continues unchanged.",
    )
    fallback: JsonValue = Field(None, description="Replaces the answer when there is none, as JSON.")
    cache_seconds: float = Field(
        0, ge=0, le=86_400, description="How long an answer serves equal requests, in seconds; 0 turns the cache off."
    )
    timeout_seconds: float = Field(
        5.0, gt=0, le=60, description="Longest time for one attempt, in seconds.", json_schema_extra=ADVANCED
    )
    concurrency: int = Field(
        32, ge=1, le=256, description="Requests at the same time, per task.", json_schema_extra=ADVANCED
    )
    retry: RetryPolicy = Field(
        default_factory=RetryPolicy, description="What happens after a failed request.", json_schema_extra=ADVANCED
    )
    rate_limit: RateLimitPolicy | None = Field(
        None,
        description="Most requests that the system is sent; messages wait for their turn.",
        json_schema_extra=ADVANCED,
    )
    breaker: BreakerPolicy | None = Field(
        None,
        description="When the circuit breaker opens. Without it, the installation's default is used.",
        json_schema_extra=ADVANCED,
    )

    @property
    def place(self) -> str:
        return f"step.{self.name}"

    @property
    def breaker_name(self) -> str:
        return f"{BREAKER_PREFIX}{self.name}"

    @model_validator(mode="after")
    def _check_answer_goes_somewhere(self) -> "Call":
        if self.to is None and not self.mapping:
            raise ValueError("Choose where the answer goes: a field for all of it, or fields for parts of it.")
        return self

    def compile_waiting(self) -> WaitingStep:
        target = paths.parse_path(self.to) if self.to else None
        mapped = [(paths.parse_path(field), paths.parse_path(part)) for field, part in self.mapping.items()]

        async def step(document: Any, resources: StepResources) -> Sequence[Any]:
            try:
                answer = await resources.get(Calls).call(self, document)
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
            limits.check_growth(document, answer)
            return (document,)

        return step
