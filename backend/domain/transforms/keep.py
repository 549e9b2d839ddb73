from typing import Any, Literal

from pydantic import Field

from backend.domain.paths import MISSING, FieldPath, get, parse_path, put
from backend.domain.transforms.base import OnMissing, Step, Transform, TransformError, on_missing, transforms


@transforms.register
class Keep(Transform):
    """Keeps the listed fields and removes all others."""

    example = {"type": "keep", "paths": ["order.id", "order.total"]}

    type: Literal["keep"] = "keep"
    paths: list[FieldPath] = Field(min_length=1, description="Fields to keep; each stays where it is.")
    on_missing: OnMissing = Field(
        "skip",
        description="A message that lacks one of them: continues with the others, is dropped, or becomes a dead "
        "letter.",
    )

    def compile(self) -> Step:
        fields = [(parse_path(path), on_missing(path, self.on_missing)) for path in self.paths]

        def step(document: Any) -> Any:
            if not isinstance(document, dict):
                raise TransformError("The message is not an object.")
            kept: dict[str, Any] = {}
            for steps, missing in fields:
                value = get(document, steps)
                if value is not MISSING:
                    _check_stays(document, steps)
                    put(kept, steps, value)
                elif not missing(kept):
                    return ()
            return (kept,)

        return step


def _check_stays(document: Any, steps: tuple[str, ...]) -> None:
    """Raises TransformError for an element of a list, which would have another place among those that are kept."""
    for number, step in enumerate(steps):
        if isinstance(document, list):
            whole = "/".join(("", *steps[:number]))
            raise TransformError(f"{whole} is a list, of which no single elements can be kept: keep the whole list.")
        document = document[step]
