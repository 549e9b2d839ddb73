import copy
from typing import Any, Literal

from pydantic import Field, JsonValue

from backend.domain import paths
from backend.domain.transforms.base import Step, Transform, transforms


@transforms.register
class Default(Transform):
    """Sets a field that is missing."""

    example = {"type": "default", "path": "country", "value": "BR"}

    type: Literal["default"] = "default"
    path: paths.FieldPath = Field(description="Field to set.")
    value: JsonValue = Field(description="Value to set if the field is missing.")
    replace_null: bool = Field(True, description="Also set the field if it is null.")

    def compile(self) -> Step:
        steps = paths.parse_path(self.path)

        def step(document: Any) -> Any:
            value = paths.get(document, steps)
            if value is paths.MISSING or (value is None and self.replace_null):
                paths.put(document, steps, copy.deepcopy(self.value))
            return (document,)

        return step
