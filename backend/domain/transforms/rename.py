from typing import Any, Literal

from pydantic import Field, model_validator

from backend.domain import paths
from backend.domain.transforms.base import Step, Transform, TransformError, transforms


@transforms.register
class Rename(Transform):
    """Moves a field to another name or place."""

    example = {"type": "rename", "path": "user.name", "to": "customer.name"}

    type: Literal["rename"] = "rename"
    path: paths.FieldPath = Field(description="Field to move.")
    to: paths.FieldPath = Field(description="Its new place.")
    on_missing: Literal["skip", "dead_letter"] = Field(
        "skip", description="What happens to a message without the field."
    )

    @model_validator(mode="after")
    def _check_places_differ(self) -> "Rename":
        source, target = paths.parse_path(self.path), paths.parse_path(self.to)
        if target[: len(source)] == source:
            raise ValueError("A field cannot be moved onto or into itself: choose another place.")
        return self

    def compile(self) -> Step:
        source, target = paths.parse_path(self.path), paths.parse_path(self.to)

        def step(document: Any) -> list[Any]:
            value = paths.remove(document, source)
            if value is not paths.MISSING:
                paths.put(document, target, value)
            elif self.on_missing == "dead_letter":
                raise TransformError(f"The message has no field {self.path}.")
            return [document]

        return step
