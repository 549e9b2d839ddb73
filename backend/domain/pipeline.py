"""The pipeline: what comes in, how it is adapted, where it goes. One declaration for
validation, OpenAPI, the form and the data plane."""

from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Self, Union
from uuid import UUID

from pydantic import ConfigDict, Field, ValidationInfo, field_validator, model_validator

from backend.domain.batching import BatchPolicy
from backend.domain.breaker import BreakerPolicy
from backend.domain.capabilities import Capability, Collect, Deliver, DeliverBatch, Export
from backend.domain.connector import Connector, RuntimeConnector
from backend.domain.examples import Example
from backend.domain.export_policy import ExportPolicy
from backend.domain.filters.fields import IndexedField
from backend.domain.inputs.base import Input, inputs
from backend.domain.inputs.http import HttpInput
from backend.domain.model import ADVANCED, StrictModel, VersionedModel
from backend.domain.rate_limit import RateLimitPolicy
from backend.domain.retry import RetryPolicy
from backend.domain.stream_processing import StreamProcessing
from backend.domain.transforms.base import Transform, transforms
from backend.domain.transforms.call import Call
from backend.domain.transforms.chain import check_order
from backend.domain.transforms.encode import Encode
from backend.domain.uses import Named, OptionVersions, PlacedUse, Use, uses_in, with_present_options

if TYPE_CHECKING:
    AnyInput = Input
    AnyTransform = Transform
else:
    AnyInput = Annotated[Union[tuple(inputs)], Field(discriminator="type")]  # noqa: UP007
    AnyTransform = Annotated[Union[tuple(transforms)], Field(discriminator="type")]  # noqa: UP007


class OutputConfig(Use, Named):
    """One place that every message of the pipeline is delivered to."""

    model_config = ConfigDict(title="Output")

    capabilities = (Deliver, DeliverBatch, Export, Collect)

    batch: BatchPolicy | None = Field(
        None,
        description="Sends many messages at a time. Without it each is sent by itself, unless the connector only "
        "takes batches.",
    )
    files: ExportPolicy | None = Field(
        None,
        description="Stores messages as files. A connector that can only store files does so without it, with these "
        "defaults.",
    )
    timeout_seconds: float = Field(
        10.0, gt=0, le=120, description="Longest time for one attempt, in seconds.", json_schema_extra=ADVANCED
    )
    rate_limit: RateLimitPolicy | None = Field(
        None,
        description="Most messages that the receiver is sent. Those beyond it wait and are delivered as the limit "
        "allows, oldest first.",
    )
    concurrency: int = Field(
        64, ge=1, le=512, description="Deliveries at the same time, per task.", json_schema_extra=ADVANCED
    )
    queue: int = Field(
        500,
        ge=1,
        le=2000,
        description="Messages that may be in flight to this output or wait for their turn, per task. While other "
        "outputs need room, those beyond it are deferred: moved to dead letters and redelivered automatically, so "
        "that a slow output never slows another.",
        json_schema_extra=ADVANCED,
    )
    retry: RetryPolicy = Field(
        default_factory=RetryPolicy, description="What happens after a failed delivery.", json_schema_extra=ADVANCED
    )
    breaker: BreakerPolicy | None = Field(
        None,
        description="When the circuit breaker opens. Without it, the installation's default is used.",
        json_schema_extra=ADVANCED,
    )
    logged_successes: float = Field(
        0.05,
        ge=0,
        le=1,
        description="Fraction of the successful deliveries that the attempts log keeps; all failures are kept.",
        json_schema_extra=ADVANCED,
    )

    @property
    def place(self) -> str:
        return f"output.{self.name}"

    @property
    def breaker_name(self) -> str:
        return self.name

    @property
    def file_policy(self) -> ExportPolicy:
        """How messages become files, if the connector stores files."""
        return self.files or ExportPolicy.model_validate({})

    @model_validator(mode="after")
    def _check_one_of_files_and_batch(self) -> "OutputConfig":
        if self.files is not None and self.batch is not None:
            raise ValueError("An output either stores files or sends batches: remove one of the two.")
        return self

    @model_validator(mode="after")
    def _check_batch_fits_queue(self) -> "OutputConfig":
        if self.batch is not None and self.batch.messages > self.queue:
            raise ValueError(
                f"A batch of {self.batch.messages} messages never fills with a queue of {self.queue}: enlarge the "
                "queue, or send smaller batches."
            )
        return self

    def bind(self, connector: RuntimeConnector) -> Any:
        bound = super().bind(connector)
        bound.timeout_seconds = self.timeout_seconds
        return bound

    def capability_of(self, connector: type[Connector]) -> type[Capability[Any, Any]] | None:
        """With files Export, with a batch policy DeliverBatch and with neither Deliver, or the first that there is."""
        preferred = Export if self.files is not None else DeliverBatch if self.batch is not None else Deliver
        return connector.capability(preferred) or super().capability_of(connector)

    def refusals(self, connector: type[Connector], connector_name: str) -> dict[str, str]:
        capability = self.capability_of(connector)
        if capability is not None:
            if self.files is not None and not issubclass(capability, Export):
                return {"files": f"{connector_name} cannot {Export.purpose}."}
            if self.batch is not None and issubclass(capability, Export):
                return {"batch": f"{connector_name} stores files, which have limits of their own: see Files."}
            if self.batch is not None and not issubclass(capability, DeliverBatch):
                return {"batch": f"{connector_name} cannot {DeliverBatch.purpose}."}
        return super().refusals(connector, connector_name)


_PRESENT: OptionVersions = MappingProxyType({})

DEFAULT_INPUT = HttpInput()
"""Where the messages of a pipeline come from whose configuration says nothing about it."""


class PipelineConfig(VersionedModel):
    """Everything that decides what happens to a message."""

    schema_version = 2

    input: AnyInput = Field(DEFAULT_INPUT, description="Where messages come from.")
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

    @classmethod
    def upgrade(cls, data: dict[str, Any], version: int) -> dict[str, Any]:
        assert version == 1
        return _with_uses(data)

    @classmethod
    def upgraded(cls, data: dict[str, Any], version: int, options: OptionVersions = _PRESENT) -> dict[str, Any]:
        """In the present form, also of the options that ``options`` has the versions of; not validated. Paths are those
        of the present form: a version that moves uses moves them as well. Raises UnreadableConfigError."""
        return with_present_options(super().upgraded(data, version), options)

    @classmethod
    def load_stored(cls, data: dict[str, Any], version: int, options: OptionVersions = _PRESENT) -> Self:
        """The stored configuration. Raises UnreadableConfigError."""
        return cls._readable(cls.upgraded(data, version, options))

    def uses(self) -> list[PlacedUse]:
        """Every use of a connector and where it stands. The one place that knows."""
        return list(uses_in(self))

    @property
    def connectors(self) -> set[UUID]:
        """Every connector that is used."""
        return {placed.use.connector for placed in self.uses()}

    @property
    def breakers(self) -> list[str]:
        """The names under which its circuit breakers and rate limits are kept."""
        return [placed.use.breaker_name for placed in self.uses() if placed.use.breaker_name is not None]

    @field_validator("input", mode="before")
    @classmethod
    def _default_type(cls, value: Any) -> Any:
        return {"type": DEFAULT_INPUT.type, **value} if isinstance(value, dict) else value

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

    @field_validator("transforms")
    @classmethod
    def _check_transforms(cls, transforms: list[Transform]) -> list[Transform]:
        check_order(transforms)
        _check_names_differ("API call", [step.name for step in transforms if isinstance(step, Call)])
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


def _with_uses(data: dict[str, Any]) -> dict[str, Any]:
    """From version 1, in which the verification was a bare id and ``http_call`` had its request beside the rest."""
    upgraded = dict(data)
    source = upgraded.get("input")
    if source and source.get("verification"):
        upgraded["input"] = source | {"verification": {"connector": source["verification"]}}
    upgraded["transforms"] = [_with_options(step) for step in upgraded.get("transforms", ())]
    return upgraded


def _with_options(step: dict[str, Any]) -> dict[str, Any]:
    if step["type"] != "http_call":
        return step
    request = {name: step[name] for name in ("method", "path", "body") if name in step}
    return {name: value for name, value in step.items() if name not in request} | {"type": "call", "options": request}


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
    schema_version: int = PipelineConfig.schema_version
    """Of the configuration, whose writer and reader may be of different releases."""
    schema_id: int | None = None
    """By which the schema registry knows the Avro schema of stream processing."""

    @model_validator(mode="before")
    @classmethod
    def _upgrade(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("config"), dict):
            data = dict(data)
            versions = data.pop("schema_version", 1), data.pop("option_versions", _PRESENT)
            return data | {"config": PipelineConfig.upgraded(data["config"], *versions)}
        return data


class RuntimeOutput(StrictModel):
    """An output joined with its connector."""

    config: OutputConfig
    connector: RuntimeConnector

    @property
    def name(self) -> str:
        return self.config.name
