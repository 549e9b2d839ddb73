import uuid
from typing import Any, Literal

from pydantic import Field

from backend.domain import json, paths
from backend.domain.transforms.base import OnMissing, Step, Transform, on_missing, transforms

_NAMESPACE = uuid.UUID("5d5f0f2c-9f0e-5d3a-8f6b-3a1c2f0b7e11")


@transforms.register
class Uuid(Transform):
    """Writes a UUID derived from other fields. Equal fields give equal UUIDs."""

    example = {"type": "uuid", "path": "id", "of": ["shop", "order.number"]}

    type: Literal["uuid"] = "uuid"
    path: paths.FieldPath = Field(description="Field to write, which replaces what is there.")
    of: list[paths.FieldPath] = Field(
        default_factory=list,
        description="Fields that the UUID (version 5) is derived from; if empty, the whole message.",
    )
    on_missing: OnMissing = Field(
        "dead_letter",
        description="A message that lacks one of them: continues unchanged, is dropped, or becomes a dead letter.",
    )

    def compile(self) -> Step:
        target = paths.parse_path(self.path)
        fields = [(path, paths.parse_path(path)) for path in self.of]

        def step(document: Any) -> Any:
            values = []
            for path, steps in fields:
                value = paths.get(document, steps)
                if value is paths.MISSING:
                    return on_missing(path, self.on_missing)(document)
                values.append(value)
            name = json.dumps(values if fields else document).decode()
            paths.put(document, target, str(uuid.uuid5(_NAMESPACE, name)))
            return (document,)

        return step
