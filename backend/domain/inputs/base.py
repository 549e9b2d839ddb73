"""What an input is."""

from typing import Any, ClassVar

from pydantic import Field

from backend.domain.model import StrictModel
from backend.domain.paths import FieldPath
from backend.domain.registry import Registry


class Input(StrictModel):
    """Where messages come from. Subclasses add ``type: Literal[...]`` and their fields."""

    example: ClassVar[dict[str, Any]]
    adapted: ClassVar[bool] = False
    """Whether its messages have passed another pipeline's adapting already."""
    posted: ClassVar[bool] = False
    """Whether its messages are posted to the pipeline's own address."""


class OrderedInput(Input):
    """An input whose messages may have an order."""

    ordering_key: FieldPath | None = Field(
        None,
        description="Field whose value orders messages: those with the same value are delivered in the order "
        "in which they arrived. Without it, messages are independent.",
        examples=["order.id"],
    )


inputs: Registry[Input] = Registry("backend.domain.inputs")
