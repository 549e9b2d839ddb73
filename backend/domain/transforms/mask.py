import hashlib
from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field

from backend.domain import json
from backend.domain.transforms.base import FieldTransform, transforms


@transforms.register
class Mask(FieldTransform):
    """Hides personal data."""

    example = {"type": "mask", "path": "user.phone", "how": "partial", "visible": 4}

    type: Literal["mask"] = "mask"
    how: Literal["redact", "partial", "hash"] = Field(
        "redact",
        description="redact: replace the value with ***. partial: keep the last characters. hash: replace it with "
        "its SHA-256.",
    )
    visible: int = Field(
        4,
        ge=0,
        le=20,
        description="For partial: number of last characters to keep. Texts shorter than twice this number are "
        "masked fully.",
    )

    def compile_value(self) -> Callable[[Any], Any]:
        def partial(value: Any) -> str:
            text = json.text(value)
            # The last characters of a short text would reveal most of it.
            shown = self.visible if len(text) >= 2 * self.visible else 0
            return "*" * (len(text) - shown) + text[len(text) - shown :]

        ways: dict[str, Callable[[Any], str]] = {
            "redact": lambda _: "***",
            "partial": partial,
            "hash": lambda value: hashlib.sha256(json.text(value).encode()).hexdigest(),
        }
        return ways[self.how]
