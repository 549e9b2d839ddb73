from typing import Any, Literal

from pydantic import Field

from backend.domain.paths import FieldPath, parse_path, remove
from backend.domain.transforms.base import Step, Transform, transforms


@transforms.register
class Remove(Transform):
    """Removes fields."""

    example = {"type": "remove", "paths": ["user.password", "internal"]}

    type: Literal["remove"] = "remove"
    paths: list[FieldPath] = Field(min_length=1, description="Fields to remove. Missing fields are ignored.")

    def compile(self) -> Step:
        unwanted = [parse_path(path) for path in self.paths]

        def step(document: Any) -> Any:
            for steps in unwanted:
                remove(document, steps)
            return (document,)

        return step
