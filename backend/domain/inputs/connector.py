from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, Field, ValidationError

from backend.domain.capabilities import Capability, ReadBatch, ReadStream
from backend.domain.connector import Connector
from backend.domain.inputs.base import OrderedInput, inputs
from backend.domain.model import SAME_SOURCE, label
from backend.domain.uses import Use

Mode = Literal["batch", "stream"]

_Reads = type[ReadBatch[Any, Any] | ReadStream[Any, Any]]
_ConnectorType = type[Connector]
_READ_BY: dict[Mode, _Reads] = {"batch": ReadBatch, "stream": ReadStream}


class Cause(NamedTuple):
    """A field whose change makes reading start anew: its dotted path in the pipeline's configuration, and its label."""

    path: str
    title: str


@inputs.register
class ConnectorInput(OrderedInput, Use):
    """Messages are read from a connector."""

    example = {"type": "connector", "connector": "0199d1a0-0000-7000-8000-000000000000"}
    capabilities = (ReadBatch, ReadStream)

    type: Literal["connector"] = "connector"
    mode: Mode | None = Field(
        None,
        description="How the connector is read: in batches, to the end and then again from there, or as a stream, all "
        "the time. Only for connectors that can be read both ways, which are read in batches without it.",
        json_schema_extra={"reads_by": {mode: kind.name for mode, kind in _READ_BY.items()}},
    )
    every_seconds: int = Field(
        30,
        ge=1,
        le=86_400,
        title="Seconds between batches",
        description="Seconds from the end of a batch to the next one, from 1 to 86,400 (a day). Only for connectors "
        "that are read in batches; one that is read as a stream is read all the time, whatever is set here.",
    )

    @property
    def wanted(self) -> tuple[_Reads, ...]:
        return self.capabilities if self.mode is None else (_READ_BY[self.mode],)

    def refusals(self, connector: _ConnectorType, connector_name: str) -> dict[str, str]:
        readable = any(connector.capability(kind) for kind in self.capabilities)
        if readable and self.mode is not None and self.capability_of(connector) is None:
            purpose = _READ_BY[self.mode].purpose
            return {"mode": f"{connector_name} cannot {purpose}: choose the other mode, or leave it out."}
        return super().refusals(connector, connector_name)


def changes_of_source(
    former: Mapping[str, Any], present: ConnectorInput, capability: type[Capability[Any, Any]]
) -> list[Cause]:
    """Why the present input, which that capability reads, cannot go on from a breakpoint of the former one, which is as
    it was stored. None when it can."""
    if former.get("connector") != str(present.connector):
        return [Cause("input.connector", label("connector"))]
    stored = former.get("options", {})
    if stored == present.options:
        return []
    model = capability.options_model
    try:
        options = model.model_validate(stored), model.model_validate(present.options)
    except ValidationError:  # another release stored what this one cannot judge
        return [Cause("input.options", label("options"))]
    return list(_differing(*options, "input.options"))


def _differing(former: BaseModel, present: BaseModel, path: str) -> Iterator[Cause]:
    """The fields that differ, but for those that leave the source the same."""
    for name, field in type(present).model_fields.items():
        extra = field.json_schema_extra
        if isinstance(extra, dict) and extra.items() >= SAME_SOURCE.items():
            continue
        before, after = getattr(former, name), getattr(present, name)
        if isinstance(after, BaseModel) and type(before) is type(after):
            yield from _differing(before, after, f"{path}.{name}")
        elif before != after:
            yield Cause(f"{path}.{name}", field.title or label(name))
