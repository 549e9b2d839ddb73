from typing import Literal

from pydantic import Field

from backend.domain.capabilities import ReadBatch, ReadStream
from backend.domain.inputs.base import OrderedInput, inputs
from backend.domain.uses import Use


@inputs.register
class ConnectorInput(OrderedInput, Use):
    """Messages are read from a connector."""

    example = {"type": "connector", "connector": "0199d1a0-0000-7000-8000-000000000000"}
    capabilities = (ReadBatch, ReadStream)

    type: Literal["connector"] = "connector"
    every_seconds: int = Field(
        30,
        ge=1,
        le=86_400,
        title="Seconds between batches",
        description="Seconds from the end of a batch to the next one, from 1 to 86,400 (a day). Only for connectors "
        "that are read in batches; one that is read as a stream is read all the time, whatever is set here.",
    )
