from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field

from backend.domain import json, limits
from backend.domain.transforms.base import FieldTransform, TransformError, transforms


@transforms.register
class Join(FieldTransform):
    """Joins the elements of a list into one text."""

    example = {"type": "join", "path": "tags", "separator": ", "}

    type: Literal["join"] = "join"
    separator: str = Field(",", max_length=100, description="Separator between the elements.")

    def compile_value(self) -> Callable[[Any], Any]:
        def change(value: Any) -> str:
            if not isinstance(value, list):
                raise TransformError(f"{self.path} is not a list.")
            limits.check_body(len(value) * len(self.separator))
            return self.separator.join(map(json.text, value))

        return change
