import os
import time
from collections.abc import Callable
from typing import Any, Literal

from backend.domain.transforms.base import FieldTransform, transforms


@transforms.register
class ToyHostile(FieldTransform):
    """Does to its process what a text says: "abort", "hang" or "eat". Other texts do nothing."""

    example = {"type": "toy_hostile", "path": "does"}

    type: Literal["toy_hostile"] = "toy_hostile"

    def compile_value(self) -> Callable[[Any], Any]:
        def do(text: Any) -> Any:
            if text == "abort":
                os.abort()
            while text == "hang":
                time.sleep(1)
            eaten = []
            while text == "eat":
                eaten.append(bytearray(10_000_000))
            return text

        return do
