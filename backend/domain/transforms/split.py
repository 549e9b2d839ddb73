import copy
from typing import Any, Literal

from pydantic import Field

from backend.domain import json, limits, paths
from backend.domain.transforms.base import OnMissing, Step, Transform, TransformError, on_missing, transforms


@transforms.register
class Split(Transform):
    """Splits a list into one message per element. An empty list gives none."""

    example = {"type": "split", "path": "items"}

    type: Literal["split"] = "split"
    path: paths.FieldPath = Field(description="The list to split.")
    keep_rest: bool = Field(
        True,
        description="Each result is the whole message with the element in place of the list; otherwise the "
        "element alone.",
    )
    on_missing: OnMissing = Field(
        "dead_letter",
        description="A message without the list: continues unchanged, is dropped, or becomes a dead letter.",
    )
    most: int = Field(
        1000,
        ge=1,
        le=10_000,
        description="Maximum length of the list. A message with a longer one becomes a dead letter.",
    )

    def compile(self) -> Step:
        steps = paths.parse_path(self.path)
        missing = on_missing(self.path, self.on_missing)

        def step(document: Any) -> Any:
            elements = paths.get(document, steps)
            if elements is paths.MISSING:
                return missing(document)
            if not isinstance(elements, list):
                raise TransformError(f"{self.path} is not a list.")
            if len(elements) > self.most:
                raise TransformError(f"{self.path} has {len(elements)} elements; at most {self.most} are allowed.")
            if not self.keep_rest:
                return elements
            paths.put(document, steps, None)
            limits.FanOut().add(len(json.dumps(document)) * len(elements), len(elements))
            results = []
            for element in elements:
                result = copy.deepcopy(document)
                paths.put(result, steps, element)
                results.append(result)
            return results

        return step
