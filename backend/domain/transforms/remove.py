from typing import Any, Literal

from pydantic import Field

from backend.domain.paths import FieldPath, is_index, parse_path, remove
from backend.domain.transforms.base import Step, Transform, transforms


@transforms.register
class Remove(Transform):
    """Removes fields."""

    example = {"type": "remove", "paths": ["user.password", "internal"]}

    type: Literal["remove"] = "remove"
    paths: list[FieldPath] = Field(
        min_length=1,
        description="Fields to remove, each by its place in the message before this step. Missing ones are ignored.",
    )

    def compile(self) -> Step:
        # An element of a list that is removed moves those after it, which therefore go first.
        unwanted = sorted({parse_path(path) for path in self.paths}, key=_order, reverse=True)

        def step(document: Any) -> Any:
            for steps in unwanted:
                remove(document, steps)
            return (document,)

        return step


def _order(steps: tuple[str, ...]) -> list[tuple[int, str]]:
    return [(int(step), "") if is_index(step) else (-1, step) for step in steps]
