from typing import Literal

from pydantic import Field

from backend.domain.filters.conditions import Condition
from backend.domain.inputs.base import Input, inputs


@inputs.register
class FilterInput(Input):
    """Messages of the workspace's other pipelines whose indexed fields meet a condition."""

    example = {"type": "filter", "condition": {"type": "equals", "field": "country", "value": "BR"}}
    adapted = True

    type: Literal["filter"] = "filter"
    condition: Condition = Field(
        description="Condition on the fields that the other pipelines index.",
        examples=[{"type": "equals", "field": "country", "value": "BR"}],
    )
