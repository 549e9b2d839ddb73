import hashlib
from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field

from backend.domain import json
from backend.domain.transforms.base import FieldTransform, transforms


@transforms.register
class Hash(FieldTransform):
    """Replaces a value with its hash. Equal values have equal hashes."""

    example = {"type": "hash", "path": "user.email"}

    type: Literal["hash"] = "hash"
    algorithm: Literal["sha256", "sha512", "sha1", "md5"] = Field(
        "sha256", description="Hash function. The result is hexadecimal; text is hashed as UTF-8, other values as JSON."
    )

    def compile_value(self) -> Callable[[Any], Any]:
        digest = getattr(hashlib, self.algorithm)

        def change(value: Any) -> str:
            return str(digest(json.text(value).encode(), usedforsecurity=False).hexdigest())

        return change
