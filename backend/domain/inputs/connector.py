from typing import Literal

from backend.domain.capabilities import ReadBatch, ReadStream
from backend.domain.inputs.base import OrderedInput, inputs
from backend.domain.uses import Use


@inputs.register
class ConnectorInput(OrderedInput, Use):
    """Messages are read from a connector."""

    example = {"type": "connector", "connector": "0199d1a0-0000-7000-8000-000000000000"}
    capabilities = (ReadBatch, ReadStream)

    type: Literal["connector"] = "connector"
