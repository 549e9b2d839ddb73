from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field, JsonValue, model_validator

from backend.domain import paths
from backend.domain.comparison import are_equal, are_ordered, exact
from backend.domain.transforms.base import Step, Transform, transforms

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "equals": are_equal,
    "not_equals": lambda value, other: not are_equal(value, other),
    "less_than": lambda value, other: are_ordered(value, other) and value < other,
    "less_or_equal": lambda value, other: are_ordered(value, other) and value <= other,
    "greater_than": lambda value, other: are_ordered(value, other) and value > other,
    "greater_or_equal": lambda value, other: are_ordered(value, other) and value >= other,
    "in": lambda value, allowed: any(are_equal(value, one) for one in allowed),
}


@transforms.register
class DropUnless(Transform):
    """Drops every message that does not match a condition."""

    example = {"type": "drop_unless", "path": "user.country", "condition": "equals", "value": "BR"}

    type: Literal["drop_unless"] = "drop_unless"
    path: paths.FieldPath = Field(description="Field to check. A missing field never matches.")
    condition: Literal[
        "exists",
        "equals",
        "not_equals",
        "less_than",
        "less_or_equal",
        "greater_than",
        "greater_or_equal",
        "in",
    ] = Field("exists", description="Condition that the message must match to continue.")
    value: JsonValue = Field(None, description="Value to compare with; for 'in', a list of values.")

    @model_validator(mode="after")
    def _check_value_fits(self) -> "DropUnless":
        if self.condition == "in" and not isinstance(self.value, list):
            raise ValueError("The condition 'in' requires a list as its value.")
        return self

    def compile(self) -> Step:
        steps = paths.parse_path(self.path)
        if self.condition == "exists":
            return lambda document: [document] if paths.get(document, steps) is not paths.MISSING else []
        compare, wanted = _COMPARE[self.condition], exact(self.value)

        def step(document: Any) -> list[Any]:
            value = paths.get(document, steps)
            return [document] if value is not paths.MISSING and compare(value, wanted) else []

        return step
