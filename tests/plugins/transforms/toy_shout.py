from collections.abc import Callable
from typing import Any, Literal

from backend.domain.transforms.base import FieldTransform, TransformError, transforms


@transforms.register
class ToyShout(FieldTransform):
    """Writes a text in capitals."""

    example = {"type": "toy_shout", "path": "name"}

    type: Literal["toy_shout"] = "toy_shout"

    def compile_value(self) -> Callable[[Any], Any]:
        def shout(value: Any) -> Any:
            if not isinstance(value, str):
                raise TransformError("Only a text can be shouted.")
            return value.upper()

        return shout
