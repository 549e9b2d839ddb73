from typing import Any, Literal

from pydantic import Field, model_validator

from backend.domain import paths
from backend.domain.transforms.base import OnMissing, Step, Transform, on_missing, transforms


@transforms.register
class Rename(Transform):
    """Renames a field or moves it to another place."""

    example = {"type": "rename", "path": "user.name", "to": "customer.name"}

    type: Literal["rename"] = "rename"
    path: paths.FieldPath = Field(description="Field to move.")
    to: paths.FieldPath = Field(description="New path of the field, which replaces what is there.")
    on_missing: OnMissing = Field(
        "skip", description="A message without the field: continues unchanged, is dropped, or becomes a dead letter."
    )

    @model_validator(mode="after")
    def _check_places_differ(self) -> "Rename":
        source, target = paths.parse_path(self.path), paths.parse_path(self.to)
        if target[: len(source)] == source:
            raise ValueError("A field cannot be moved onto or into itself: choose another path.")
        return self

    def compile(self) -> Step:
        source, target = paths.parse_path(self.path), paths.parse_path(self.to)
        missing = on_missing(self.path, self.on_missing)

        def step(document: Any) -> Any:
            value = paths.remove(document, source)
            if value is paths.MISSING:
                return missing(document)
            paths.put(document, target, value)
            return (document,)

        return step
