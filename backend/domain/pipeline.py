"""The pipeline: what comes in, how it is adapted, where it goes. One declaration for
validation, OpenAPI, the form and the data plane."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Union
from uuid import UUID

from pydantic import ConfigDict, Field, ValidationInfo, field_validator, model_validator

from backend.domain.breaker import BreakerPolicy
from backend.domain.examples import Example
from backend.domain.filters.conditions import Condition
from backend.domain.filters.fields import IndexedField
from backend.domain.model import ADVANCED, StrictModel
from backend.domain.paths import FieldPath
from backend.domain.rate_limit import RateLimitPolicy
from backend.domain.retry import RetryPolicy
from backend.domain.stream_processing import StreamProcessing
from backend.domain.transforms.base import Transform, transforms
from backend.domain.transforms.chain import check_order
from backend.domain.transforms.encode import Encode
from backend.domain.transforms.http_call import BREAKER_PREFIX, HttpCall

if TYPE_CHECKING:
    AnyTransform = Transform
else:
    AnyTransform = Annotated[Union[tuple(transforms)], Field(discriminator="type")]  # noqa: UP007


class Reading(StrEnum):
    """How the data plane reads an input that sends nothing by itself (seed 003, "Input Batching" and after)."""

    BATCHING = "batching"
    """To its end, then again from where that was."""
    STREAMING = "streaming"
    """For as long as the pipeline is in force."""


class Input(StrictModel):
    """Base of what messages come from. An input that has to be read is leased to one reader at a time."""

    reading: ClassVar[Reading | None] = None


class HttpInput(Input):
    """Messages are posted to the pipeline's own address."""

    type: Literal["http"] = "http"
    verification: UUID | None = Field(
        None,
        description="Connector that verifies each request, for senders that cannot use an API key. Without it, an "
        "API key of the workspace is needed.",
    )
    deduplicate_seconds: int = Field(
        86_400,
        ge=0,
        le=604_800,
        description="How long a repeated Idempotency-Key or webhook-id is recognised, in seconds; 0 turns it off.",
        json_schema_extra=ADVANCED,
    )
    ordering_key: FieldPath | None = Field(
        None,
        description="Field whose value orders messages: those with the same value are delivered in the order "
        "they came. Without it, messages are independent.",
        examples=["order.id"],
    )


class FilterInput(Input):
    """Messages of the workspace's other pipelines, as far as their indexed fields meet a condition."""

    type: Literal["filter"] = "filter"
    condition: Condition = Field(
        description="What must hold of the fields that the other pipelines index.",
        examples=[{"type": "equals", "field": "country", "value": "BR"}],
    )


class OutputConfig(StrictModel):
    """One place that every message of the pipeline is delivered to."""

    model_config = ConfigDict(title="Output")

    name: str = Field(
        pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$",
        description="Short name, unique in the pipeline; it appears in metrics and dead letters.",
        examples=["erp"],
    )
    connector: UUID = Field(description="Connector to deliver through.")
    options: dict[str, Any] = Field(
        default_factory=dict, description="Settings of this delivery, as the connector's type defines them."
    )
    timeout_seconds: float = Field(
        10.0, gt=0, le=120, description="Longest time for one try, in seconds.", json_schema_extra=ADVANCED
    )
    rate_limit: RateLimitPolicy | None = Field(
        None,
        description="Most that the receiver is sent. What is above it waits and is delivered as the limit allows, "
        "oldest first.",
    )
    concurrency: int = Field(
        64, ge=1, le=512, description="Deliveries at the same time, per task.", json_schema_extra=ADVANCED
    )
    queue: int = Field(
        500,
        ge=1,
        le=2000,
        description="Messages that may be under way to this output or wait for their turn, per task. While other "
        "outputs need room, what is above it is set aside and delivered later, so that a slow output never slows "
        "another.",
        json_schema_extra=ADVANCED,
    )
    retry: RetryPolicy = Field(
        default_factory=RetryPolicy, description="What happens after a failed delivery.", json_schema_extra=ADVANCED
    )
    breaker: BreakerPolicy | None = Field(
        None,
        description="When an output that fails is left alone. Without it, the installation's default is used.",
        json_schema_extra=ADVANCED,
    )
    logged_successes: float = Field(
        0.05,
        ge=0,
        le=1,
        description="Share of the successful deliveries that the attempts log keeps; failures are all kept.",
        json_schema_extra=ADVANCED,
    )


class PipelineConfig(StrictModel):
    """Everything that decides what happens to a message."""

    input: Annotated[HttpInput | FilterInput, Field(discriminator="type")] = Field(
        default_factory=HttpInput, description="Where messages come from."
    )
    transforms: list[AnyTransform] = Field(
        default_factory=list, max_length=100, description="Steps applied to each message, in order."
    )
    stream_processing: StreamProcessing | None = Field(
        None, description="Hands messages over to stream processing.", json_schema_extra=ADVANCED
    )
    index: list[IndexedField] = Field(
        default_factory=list,
        max_length=50,
        description="Fields that other pipelines of the workspace may filter these messages by.",
    )
    examples: list[Example] = Field(
        default_factory=list,
        max_length=50,
        description="Messages with what the transforms make of them; a version that fails one is not published.",
    )
    outputs: list[OutputConfig] = Field(
        default_factory=list,
        max_length=50,
        validate_default=True,
        description="Where messages are delivered; each gets every message.",
    )

    @field_validator("input", mode="before")
    @classmethod
    def _http_unless_said(cls, value: Any) -> Any:
        return {"type": "http", **value} if isinstance(value, dict) else value

    @field_validator("index")
    @classmethod
    def _check_fields_differ(cls, index: list[IndexedField]) -> list[IndexedField]:
        _check_names_differ("indexed field", [field.name for field in index])
        return index

    @field_validator("outputs")
    @classmethod
    def _check_goes_somewhere(cls, outputs: list[OutputConfig], info: ValidationInfo) -> list[OutputConfig]:
        if not outputs and not info.data.get("index") and not info.data.get("stream_processing"):
            raise ValueError("Messages need an output, or indexed fields by which other pipelines take them.")
        return outputs

    @model_validator(mode="after")
    def _check_fields_can_be_read(self) -> "PipelineConfig":
        if self.transforms and isinstance(self.transforms[-1], Encode):
            if self.index:
                raise ValueError("Messages that were encoded by the last transform have no fields to index.")
            if self.stream_processing:
                raise ValueError("Messages that were encoded by the last transform cannot be handed over as Avro.")
        return self

    @property
    def verification(self) -> UUID | None:
        """The connector that verifies incoming requests."""
        return self.input.verification if isinstance(self.input, HttpInput) else None

    @property
    def calls(self) -> dict[int, HttpCall]:
        """The steps that ask external APIs, by their position from 0."""
        return {index: step for index, step in enumerate(self.transforms) if isinstance(step, HttpCall)}

    @property
    def connectors(self) -> set[UUID]:
        """Every connector that is used."""
        used = {output.connector for output in self.outputs} | {step.connector for step in self.calls.values()}
        return used | ({self.verification} if self.verification else set())

    @field_validator("transforms")
    @classmethod
    def _check_transforms(cls, transforms: list[Transform]) -> list[Transform]:
        check_order(transforms)
        _check_names_differ("API call", [step.name for step in transforms if isinstance(step, HttpCall)])
        return transforms

    @field_validator("examples")
    @classmethod
    def _check_examples_differ(cls, examples: list[Example]) -> list[Example]:
        _check_names_differ("example", [example.name for example in examples])
        return examples

    @field_validator("outputs")
    @classmethod
    def _check_outputs_differ(cls, outputs: list[OutputConfig]) -> list[OutputConfig]:
        _check_names_differ("output", [output.name for output in outputs])
        return outputs


def breaker_names(config: dict[str, Any]) -> list[str]:
    """Under which a saved configuration's circuit breakers and rate limits are kept: those of the outputs and of
    the external APIs."""
    calls = [step for step in config.get("transforms", ()) if step["type"] == "http_call"]
    return [output["name"] for output in config["outputs"]] + [f"{BREAKER_PREFIX}{step['name']}" for step in calls]


def _check_names_differ(what: str, names: list[str]) -> None:
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"Each {what} needs a name of its own; repeated: {', '.join(repeated)}.")


class PipelineSnapshot(StrictModel):
    """A published pipeline as the data plane knows it: everything but secrets."""

    id: UUID
    workspace_id: UUID
    version: int
    accepting: bool
    config: PipelineConfig
    schema_id: int | None = None
    """By which the schema registry knows the Avro schema of stream processing."""


class RuntimeConnector(StrictModel):
    """A connector as the data plane needs it. ``connection`` holds secrets in the clear: memory only.

    ``error`` says why it could not be had.
    """

    type: str
    connection: dict[str, Any] = Field(repr=False)
    error: str = ""


class RuntimeOutput(StrictModel):
    """An output joined with its connector."""

    config: OutputConfig
    connector: RuntimeConnector

    @property
    def name(self) -> str:
        return self.config.name
