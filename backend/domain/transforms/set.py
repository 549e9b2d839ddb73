import copy
from typing import Literal

from pydantic import Field, JsonValue

from backend.domain import paths
from backend.domain.transforms.base import Step, Transform, transforms


@transforms.register
class Set(Transform):
    """Sets a field to a fixed value."""

    example = {"type": "set", "path": "source", "value": "erp"}

    type: Literal["set"] = "set"
    path: paths.FieldPath = Field(description="Field to set. Missing parent objects are created.")
    value: JsonValue = Field(description="Value to set.")

    def compile(self) -> Step:
        steps = paths.parse_path(self.path)
        # Lists and objects are copied per message, since later steps may change them in place.
        mutable = isinstance(self.value, dict | list)

        def step(document: object) -> list[object]:
            value = copy.deepcopy(self.value) if mutable else self.value
            paths.put(document, steps, value)
            return [document]

        return step
