import copy
from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field

from backend.domain import paths
from backend.domain.transforms.base import FieldTransform, transforms


@transforms.register
class Copy(FieldTransform):
    """Copies a field to another place."""

    example = {"type": "copy", "path": "user.email", "to": "contact"}

    type: Literal["copy"] = "copy"
    to: paths.FieldPath = Field(description="Field to write the copy to, which replaces what is there.")

    def compile_value(self) -> Callable[[Any], Any]:
        # Later steps change documents in place, and must not change the original through the copy.
        return lambda value: copy.deepcopy(value) if isinstance(value, dict | list) else value
